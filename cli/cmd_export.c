/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard export RUN_DIR --format NAME --to DIR: weights of a run for other programs. */
#include "config.h"

#include <stdio.h>

#include "cli/cli.h"
#include "import/export.h"

int cli_export(const struct cli_options *o)
{
    struct sy_error err = {0};
    if (!o->format || !o->folder) {
        cli_error("export: which form, and where to? switchyard export RUN_DIR --format hf --to DIR");
        return CLI_USAGE;
    }
    struct syi_export *export = syi_alloc(sizeof *export, &err);
    if (!export) return cli_fail(&err);
    int status = syi_export_check(o->format, &err);
    if (!status) status = cli_load_run(o->operand[0], o, &export->config, &err);
    if (!status) status = cli_weights_dtype(o->dtype, &export->dtype, &err);
    if (status) {
        syi_free(export);
        return cli_load_failed(&err);
    }
    cli_log_to_stderr(o->quiet);
    cli_catch_interrupts();
    status = syi_export_run(export, o->operand[0], o->checkpoint, o->format, o->folder, &err);
    if (!status && !o->quiet)
        printf("%sstep %lld written to %s\n", export->said.data ? export->said.data : "",
               (long long)export->step, o->folder);
    syi_export_free(export);
    syi_free(export);
    return status ? cli_fail_or_stop(&err) : CLI_DONE;
}
