/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard pack RUN -o MODEL.sy: one file with what inference needs. */
#include "config.h"

#include <stdio.h>

#include "cli/cli.h"
#include "import/pack.h"

static int read_weights(const struct cli_options *o, enum syi_safetensors_dtype *weights,
                        struct sy_error *err)
{
    if (o->int8 && o->dtype)
        return syi_error(err, SY_EINVAL, "pack: weights are --int8 or of a --dtype: give one of both");
    if (!o->int8) return cli_weights_dtype(o->dtype, weights, err);
    *weights = SYI_SAFETENSORS_I8;
    return SY_OK;
}

static int run(const struct cli_options *o)
{
    struct sy_error err = {0};
    struct syi_pack pack = {.run = o->operand[0], .step = o->checkpoint};
    if (!o->output || !*o->output) {
        cli_error("pack: where to? switchyard pack RUN -o MODEL.sy");
        return CLI_USAGE;
    }
    if (read_weights(o, &pack.weights, &err)) return cli_usage(&err);
    cli_log_to_stderr(o->quiet);
    if (syi_pack_run(&pack, o->output, &err)) return cli_fail(&err);
    if (!o->quiet)
        printf("step %lld, %lld weights, %llu bytes written to %s\n", (long long)pack.packed_step,
               (long long)pack.parameters, (unsigned long long)pack.bytes, o->output);
    return CLI_DONE;
}

const struct cli_cmd cli_pack = {
    "pack",
    "RUN",
    "output:pack int8 dtype:pack checkpoint quiet",
    "Writes one file with what inference needs: configuration, vocabularies, weights.",
    "RUN is a run directory or the folder of a checkpoint in one. predict, score, eval, tokenize, plan, config, explain and\n"
    "the library open the file as they open a run. --int8 stores the weights of matrix products as 8 bits and a float32\n"
    "scale for each output channel; norm scales, biases, relative positions and routers stay float32. They become float32\n"
    "again when the file is opened: the file is smaller, the memory of the model is not. Example:\n"
    "  switchyard pack runs/g2p -o g2p.sy --int8",
    run};
