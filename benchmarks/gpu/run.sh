#!/bin/bash
# On the GPU machine, in a checkout: run campaigns there and pack what they left.
#
#   benchmarks/gpu/run.sh ARCHIVES SECONDS OUT CAMPAIGN...
#
# ARCHIVES: folder with the archives that build.py makes; each is unpacked once.
# SECONDS: after these the running campaign is interrupted; the next command resumes it.
# OUT: gets results.txz (without chunks), logs.txz and the reports.
# TARGETS: in the environment, what to make in place of the report: the sessions of one trial, say.
set -u
archives=$1 deadline=$(( SECONDS + $2 )) out=$3
shift 3
here=$(cd "$(dirname "$0")" && pwd)
unpacked=/tmp/crossover-gpu
mkdir -p "$out"

for archive in "$archives"/*.txz; do
    name=$(basename "$archive" .txz)
    [ -d $unpacked/"$name" ] && continue
    rm -rf $unpacked/part && mkdir -p $unpacked/part && tar -xJf "$archive" -C $unpacked/part || exit 3
    mv $unpacked/part $unpacked/"$name"
done
[ -d gpu/models/eagle3 ] || python3 "$here"/models.py gpu/models || exit 4
ulimit -n "$(ulimit -Hn)"

mkdir -p $unpacked/bin
cat > $unpacked/bin/vllm <<END
#!/bin/sh
export PYTHONPATH=$unpacked/vllm
exec python3 -m vllm.entrypoints.cli.main "\$@"
END
cat > $unpacked/bin/sglang <<END
#!/bin/sh
shift
export PYTHONPATH=$unpacked/sglang
exec python3 -m sglang.launch_server "\$@"
END
chmod +x $unpacked/bin/*
export PATH=$unpacked/bin:$PATH:/usr/local/cuda/bin PYTHONPATH=$unpacked/product:$unpacked/charts
CUDA_HOME=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
export CUDA_HOME

code=0
for campaign in "$@"; do
    left=$(( deadline - SECONDS ))
    [ $left -gt 60 ] || { echo "$campaign: no time left"; break; }
    timeout --signal=INT --kill-after=30 $left python3 -m snakemake -c8 --keep-going \
        ${TARGETS:-reports/crossover.html} --configfile "config/campaigns/$campaign.yaml" || code=$?
    [ -f reports/crossover.html ] && mv reports/crossover.html "$out/$campaign.html"
done
nvidia-smi --query-gpu=name,driver_version,memory.used,power.draw,clocks.sm --format=csv > "$out"/gpu.csv
tar -cJf "$out"/results.txz --exclude=chunks.parquet --exclude='samples*' results
tar -cJf "$out"/logs.txz logs
exit $code
