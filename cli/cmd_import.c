/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard import DIR --to RUN: a checkpoint of another program becomes a run directory. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "import/import.h"

/* The run file and keys of the command line: applied before the folder is read, which may need them, and again after it, for they
 * hold over what it says. Where they make another model, the tensors do not fit and the import says so. */
static int apply(const struct cli_options *o, struct syi_config *config, struct sy_error *err)
{
    int status = o->n_operands > 1 ? syi_config_load(config, o->operand[1], err) : SY_OK;
    for (int i = 0; i < o->set.n && !status; i++) status = syi_config_set(config, o->set.item[i], err);
    return status;
}

/* Where keys ask for another kind of vocabulary than the folder has, the folder's file is of no use to it. */
static int apply_over_folder(const struct cli_options *o, struct syi_config *config, struct sy_error *err)
{
    struct syi_vocabulary_part *part = &config->vocabulary.part[0], folder = *part;
    int status = apply(o, config, err);
    if (part->kind != folder.kind && !strcmp(part->file, folder.file)) part->file[0] = '\0';
    return status;
}

static void print_result(const struct syi_import *import, const char *to)
{
    size_t params = 0;
    for (size_t i = 0; i < import->n; i++) params += import->tensors[i].name[0] == 't';
    if (import->unused.length) printf("%s", import->unused.data);
    printf("%zu parameters, step %lld\nrun directory %s\n", params, (long long)import->step, to);
}

static int import_folder(const struct cli_options *o, struct syi_import *import, struct sy_error *err)
{
    int status = syi_import_open(import, o->operand[0], o->format, err);
    if (!status) status = apply_over_folder(o, &import->config, err);
    if (!status) status = syi_import_write(import, o->folder, err);
    if (!status && !o->quiet) print_result(import, o->folder);
    return status;
}

int cli_import(const struct cli_options *o)
{
    struct sy_error err = {0};
    if (!o->folder) {
        cli_error("import: where to? switchyard import DIR --to RUN_DIR");
        return CLI_USAGE;
    }
    struct syi_import *import = syi_alloc(sizeof *import, &err);
    if (!import) return cli_fail(&err);
    int status = syi_config_defaults(&import->config, &err);
    if (!status) status = apply(o, &import->config, &err);
    if (status) {
        syi_free(import);
        return cli_usage(&err);
    }
    cli_log_to_stderr(o->quiet);
    cli_catch_interrupts();
    status = import_folder(o, import, &err);
    syi_import_close(import);
    syi_free(import);
    return status ? cli_fail_or_stop(&err) : CLI_DONE;
}
