/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard config [RUNFILE]: all keys with their help, or the values in force. */
#include "config.h"

#include <stdio.h>

#include "base/compat.h"
#include "base/schedules.h"
#include "cli/cli.h"

/* The value in force of a key of the table; of a kind whose parts have names, of each of them. */
static int print_here(const struct syi_config *config, const char *text, struct syi_text *out,
                      struct sy_error *err)
{
    char reason[SYI_REASON], full[SYI_KEY];
    struct syi_key key;
    if (syi_key_parse(text, &key, reason)) return syi_error(err, SY_EINTERNAL, "%s", reason);
    int parts = syi_config_parts(config, key.kind), status = SY_OK;
    if (!parts) syi_text_printf(out, "there is no [%s.%s]", key.kind->name, key.part);
    for (int i = 0; i < parts && !status; i++) {
        const char *name = syi_part_name(syi_config_part(config, key.kind, i));
        syi_key_text(key.kind, name, key.option, full);
        syi_text_printf(out, "%s%s%s", i ? ", " : "", name, *name ? ": " : "");
        status = syi_config_get_text(config, full, out, err);
    }
    return status;
}

/* The table of compat keys with both behaviours and, with a run file, the one in force. */
static int print_compat(const struct syi_config *config, const char *file, struct syi_text *text,
                        struct sy_error *err)
{
    size_t n;
    const struct syi_compat_row *row = syi_compat_table(&n);
    int status = SY_OK;
    for (size_t i = 0; i < n && !status; i++) {
        syi_text_printf(text, "%s\n  none: %s\n  t5x:  %s\n", row[i].key, row[i].switchyard, row[i].t5x);
        if (!file) continue;
        syi_text_puts(text, "  here: ");
        status = print_here(config, row[i].key, text, err);
        syi_text_printf(text, " (run.compat = %s)\n", config->run.compat == SYI_COMPAT_T5X ? "t5x" : "none");
    }
    return status;
}

static void print_factors(struct syi_text *text)
{
    size_t n;
    const struct syi_term_kind *kind = syi_schedule_kinds(&n);
    for (size_t i = 0; i < n; i++) syi_term_describe(&kind[i], text);
}

static int run(const struct cli_options *options)
{
    struct syi_config config;
    struct sy_error err = {0};
    struct syi_text text = {0};
    const char *file = options->n_operands ? options->operand[0] : NULL;
    if (options->factors && (file || options->set.n || options->compat_diff)) {
        cli_error("config: the factors are the same for every run: with --factors leave out all else");
        return CLI_USAGE;
    }
    int status = cli_load_config(file, options, &config, &err);
    if (status) return cli_usage(&err);
    if (options->factors)
        print_factors(&text);
    else if (options->compat_diff)
        status = print_compat(&config, file, &text, &err);
    else
        syi_config_print(&config, file == NULL, &text);
    if (!status) status = syi_text_status(&text, &err);
    if (!status && text.data) fputs(text.data, stdout);
    syi_text_free(&text);
    return status ? cli_fail(&err) : CLI_DONE;
}

const struct cli_cmd cli_config = {
    "config",
    "[RUNFILE]",
    "set factors compat-diff",
    "Prints every key of a run file with its default and help, or the values in force.",
    "With a run file: the values in force, a run file that loads again. Without: all keys with their\n"
    "types, ranges, defaults and help. --compat-diff: what T5X does otherwise, key by key. --factors: what\n"
    "train.lr_factors can name.",
    run};
