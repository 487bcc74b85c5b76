# The model of the campaigns for processors, made from the file that an installed package carries.


rule make_model:
    output:
        "models/smollm2-135m-instruct-{dtype}.gguf",
    log:
        "logs/models/smollm2-135m-instruct-{dtype}.log",
    wildcard_constraints:
        dtype="bf16|q8_0",
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        run=flow.Script("make_model.py"),
    message:
        "make the model file {output}"
    shell:
        "{params.run} {output} > {log} 2>&1"


rule make_model_folder:
    input:
        "models/smollm2-135m-instruct-bf16.gguf",
    output:
        directory("models/smollm2-135m-instruct-hf"),
    log:
        "logs/models/smollm2-135m-instruct-hf.log",
    localrule: True
    conda:
        "../envs/workflow.yaml"
    params:
        run=flow.Script("make_model_folder.py"),
    message:
        "make the model folder {output}"
    shell:
        "{params.run} {input} {output} > {log} 2>&1"
