/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard config [RUNFILE]: all keys with their help, or the values in force. */
#include "config.h"

#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include "base/compat.h"
#include "base/optimizers.h"
#include "base/schedules.h"
#include "cli/cli.h"
#include "optim/optim.h"

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

/* ---- what a run file can name ---- */

/* The keys that the optimizer takes, with what stands for auto, and its chain. */
static int print_optimizer(const struct syi_config *config, struct syi_text *text, struct sy_error *err)
{
    const struct syi_optimizer_part *part = &config->optimizer.part[0];
    const struct syi_part_kind *kind = syi_optimizer_kind();
    struct syi_optimizer_part resolved = syi_optimizer_resolve(config, 0);
    struct syi_chain *chains;
    int status = syi_chains_make(config, &chains, err);
    if (status) return status;
    for (size_t i = 0; i < kind->n_options; i++) {
        const struct syi_option *option = &kind->options[i];
        if (!syi_optimizer_takes(part->name, option->name)) continue;
        if (syi_optimizer_takes(SYI_OPTIMIZER_NONE, option->name)) continue; /* of every part */
        syi_text_printf(text, "  %s = ", option->name);
        syi_option_print(option, (const char *)&resolved + option->offset, text);
        syi_text_puts(text, "\n");
    }
    syi_text_puts(text, "  chain = ");
    syi_terms_print_list(&chains->terms, text);
    syi_text_puts(text, "\n");
    syi_chains_free(chains, config->optimizer.n);
    return SY_OK;
}

static int print_optimizers(struct syi_config *config, struct syi_text *text, struct sy_error *err)
{
    int status = SY_OK;
    for (int i = 0; i < SYI_OPTIMIZER_CHAIN && !status; i++) {
        const struct syi_optimizer_info *info = syi_optimizer_info(i);
        config->optimizer.part[0].name = i;
        syi_text_printf(text, "%s: %s\n", info->name, info->help);
        status = print_optimizer(config, text, err);
    }
    return status;
}

static const struct list {
    const char *name;                                /* of its option */
    size_t asked;                                    /* in struct cli_options */
    const struct syi_term_kind *(*kinds)(size_t *n); /* NULL: the optimizers */
} lists[] = {
    {"factors", offsetof(struct cli_options, factors), syi_schedule_kinds},
    {"optimizers", offsetof(struct cli_options, optimizers), NULL},
    {"transforms", offsetof(struct cli_options, transforms), syi_transform_kinds},
};

static int print_list(const struct list *list, struct syi_config *defaults, struct syi_text *text,
                      struct sy_error *err)
{
    size_t n;
    if (!list->kinds) return print_optimizers(defaults, text, err);
    const struct syi_term_kind *kind = list->kinds(&n);
    for (size_t i = 0; i < n; i++) syi_term_describe(&kind[i], text);
    return SY_OK;
}

static int is_asked(const struct list *list, const struct cli_options *options)
{
    return *(const int *)(const void *)((const char *)options + list->asked);
}

/* The list to print, NULL: none; *others: how much else was asked for. */
static const struct list *find_list(const struct cli_options *options, int *others)
{
    const struct list *found = NULL;
    *others = options->n_operands + options->set.n + options->compat_diff;
    for (size_t i = 0; i < SYI_COUNT(lists); i++) {
        if (!is_asked(&lists[i], options)) continue;
        *others += found != NULL;
        found = &lists[i];
    }
    return found;
}

/* ---- the command ---- */

int cli_config(const struct cli_options *options)
{
    struct syi_config config;
    struct sy_error err = {0};
    struct syi_text text = {0};
    int others;
    const char *file = options->n_operands ? options->operand[0] : NULL;
    const struct list *list = find_list(options, &others);
    if (list && others) {
        cli_error("config: the %s are the same for every run: with --%s leave out all else", list->name,
                  list->name);
        return CLI_USAGE;
    }
    int status = cli_load_config(file, options, &config, &err);
    if (status) return cli_load_failed(&err);
    if (list)
        status = print_list(list, &config, &text, &err);
    else if (options->compat_diff)
        status = print_compat(&config, file, &text, &err);
    else
        syi_config_print(&config, file == NULL, &text);
    if (!status) status = syi_text_status(&text, &err);
    if (!status && text.data && !file && isatty(STDOUT_FILENO))
        cli_print_help_lines(text.data);
    else if (!status && text.data)
        fputs(text.data, stdout);
    syi_text_free(&text);
    return status ? cli_fail(&err) : CLI_DONE;
}
