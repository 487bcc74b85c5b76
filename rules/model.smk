# The default campaign's model, made from the file that an installed package carries.


rule make_model:
    output:
        "models/smollm2-135m-instruct-{dtype}.gguf",
    log:
        "logs/models/smollm2-135m-instruct-{dtype}.log",
    wildcard_constraints:
        dtype="bf16|q8_0",
    conda:
        "../envs/workflow.yaml"
    params:
        run=flow.Script("make_model.py"),
    message:
        "make the model file {output}"
    shell:
        "{params.run} {output} > {log} 2>&1"
