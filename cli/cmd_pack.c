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

int cli_pack(const struct cli_options *o)
{
    struct sy_error err = {0};
    struct syi_pack pack = {.run = o->operand[0], .step = o->checkpoint};
    if (!o->output || !*o->output) {
        cli_error("pack: where to? switchyard pack RUN -o MODEL.sy");
        return CLI_USAGE;
    }
    if (read_weights(o, &pack.weights, &err)) return cli_usage(&err);
    cli_log_to_stderr(o->quiet);
    cli_catch_interrupts();
    if (syi_pack_run(&pack, o->output, &err)) return cli_fail_or_stop(&err);
    if (!o->quiet)
        printf("step %lld, %lld weights, %llu bytes written to %s\n", (long long)pack.packed_step,
               (long long)pack.parameters, (unsigned long long)pack.bytes, o->output);
    return CLI_DONE;
}
