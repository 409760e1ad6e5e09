/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard diff A [B]: two runs op by op, and the first element that differs. Comparing is done in
 * core/train/compare/lockstep.c, printing in diff_report.c. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/diff_report.h"
#include "train/engine/engine.h"
#include "train/launch/variant.h"

struct side {
    struct cli_options options; /* of both sides, then those of this one */
    struct syi_config config;
    int use; /* bits of enum syi_engine_use */
};

/* ---- what one side is ---- */

/* "threads=1": a whole number after the name of an option. 0: another name. -1: no number, reported. */
static int take_number(const char *setting, const char *name, int *value)
{
    size_t length = strlen(name);
    char *end;
    if (strncmp(setting, name, length) || setting[length] != '=') return 0;
    errno = 0;
    long number = strtol(setting + length + 1, &end, 10);
    if (!errno && !*end && end != setting + length + 1 && number >= 1 && number <= 65536) {
        *value = (int)number;
        return 1;
    }
    cli_error("diff: %s: expected a whole number in 1..65536", setting);
    return -1;
}

static int take_text(const char *setting, const char *name, const char **value)
{
    size_t length = strlen(name);
    if (strncmp(setting, name, length) || setting[length] != '=') return 0;
    *value = setting + length + 1;
    return 1;
}

/* "fuse=off" sets a bit, "fuse=on" takes it back. */
static int take_switch(const char *setting, const char *name, int bit, int *bits)
{
    const char *value;
    if (!take_text(setting, name, &value)) return 0;
    *bits &= ~bit;
    if (!strcmp(value, "off")) *bits |= bit;
    if (!strcmp(value, "off") || !strcmp(value, "on")) return 1;
    cli_error("diff: %s: expected on or off", setting);
    return -1;
}

/* A value of --a or --b: one of the launch or of the engine, or a key of the run file. */
static int take_setting(const char *setting, struct side *side)
{
    struct cli_options *o = &side->options;
    int found = take_number(setting, "threads", &o->threads);
    if (!found) found = take_number(setting, "ranks", &o->ranks);
    if (!found) found = take_text(setting, "backend", &o->backend);
    if (!found) found = take_text(setting, "comm", &o->comm);
    if (!found) found = take_switch(setting, "fuse", SYI_USE_UNFUSED, &side->use);
    if (!found) found = take_switch(setting, "reuse", SYI_USE_APART, &side->use);
    if (found) return found < 0 ? CLI_USAGE : CLI_DONE;
    if (cli_sets_threads(setting))
        o->threads = 0; /* --threads is of both sides: what one says itself holds */
    if (o->set.n == CLI_MAX_SETS) {
        cli_error("diff: at most %d keys on a side", CLI_MAX_SETS);
        return CLI_USAGE;
    }
    o->set.item[o->set.n++] = setting;
    return CLI_DONE;
}

/* --backends A,B: the name of one side, which lives as long as the words of the command line. */
static int take_backend(const struct cli_options *o, int b, struct side *side)
{
    static char name[2][64];
    const char *comma = o->backends ? strchr(o->backends, ',') : NULL;
    if (!o->backends) return CLI_DONE;
    const char *from = b && comma ? comma + 1 : o->backends;
    size_t length = b ? strlen(from) : comma ? (size_t)(comma - from) : 0;
    if (!comma || !length || length >= sizeof name[b] || strchr(comma + 1, ',')) {
        cli_error("diff: --backends %s: expected the names of two backends, as in cpu,cuda", o->backends);
        return CLI_USAGE;
    }
    snprintf(name[b], sizeof name[b], "%.*s", (int)length, from);
    side->options.backend = name[b];
    return CLI_DONE;
}

static int open_side(struct side *side, const struct cli_options *o, int b, const char *file,
                     const struct cli_list *settings)
{
    struct sy_error err = {0};
    side->options = *o;
    int status = take_backend(o, b, side);
    for (int i = 0; !status && i < settings->n; i++) status = take_setting(settings->item[i], side);
    if (status) return status;
    if (cli_load_config(file, &side->options, &side->config, &err)) return cli_load_failed(&err);
    return cli_check_launch("diff", &side->options, &side->config, 1);
}

/* The environment decides for both sides: then nobody learns what was asked. */
static int check_variants(const struct side *a, const struct side *b)
{
    const char *forced = getenv("SWITCHYARD_CPU_VARIANT");
    if (!forced || !*forced || a->config.cpu.variant == b->config.cpu.variant) return CLI_DONE;
    cli_error("diff: SWITCHYARD_CPU_VARIANT=%s overrides cpu.variant on both sides: unset it", forced);
    return CLI_USAGE;
}

static int asks_auto(const struct side *side)
{
    const struct syi_config *c = &side->config;
    return !strcmp(side->options.backend, "cpu") && c->model.dtype == SYI_DTYPE_BFLOAT16 &&
           c->cpu.variant == SYI_CPU_VARIANT_AUTO && c->cpu.bfloat16 == SYI_CPU_BFLOAT16_AUTO;
}

/* Two measurements that disagree would be a difference of the sides: auto measures once for both. */
static int share_choice(struct side *a, struct side *b)
{
    const struct syi_variant_wish wish = {.dtype = SYI_DTYPE_BFLOAT16};
    struct sy_error err = {0};
    int variant;
    if (!asks_auto(a) || !asks_auto(b)) return CLI_DONE;
    if (syi_variant_choose(&wish, &variant, &err)) return cli_fail(&err);
    a->config.cpu.bfloat16 = b->config.cpu.bfloat16 = syi_variant_bfloat16(variant);
    return CLI_DONE;
}

/* Parts of sums, and routing groups, which follow them, are not to differ because one side is on matrix tiles. */
static void share_leaves(struct side *a, struct side *b)
{
    int64_t *one = &a->config.reproducible.min_leaf, *other = &b->config.reproducible.min_leaf;
    if (!*one) *one = *other ? *other : SYI_MIN_LEAF;
    if (!*other) *other = *one;
}

/* ---- the command ---- */

static int print(const struct cli_options *o, const struct cli_diff_request *request,
                 const struct syi_lockstep_result *result)
{
    struct syi_text text = {0};
    struct sy_error err = {0};
    (o->json ? cli_diff_json : cli_diff_report)(request, result, &text);
    if (syi_text_status(&text, &err)) return cli_fail(&err);
    fputs(text.data, stdout);
    syi_text_free(&text);
    return result->end == SYI_LOCKSTEP_EQUAL ? CLI_DONE : CLI_FAILED;
}

static int compare(const struct cli_options *o, struct side *a, struct side *b)
{
    struct cli_diff_request request = {.file = {o->operand[0], o->operand[o->n_operands - 1]},
                                       .tolerance = o->tolerance};
    struct syi_lockstep_result result;
    struct sy_error err = {0};
    int status = open_side(a, o, 0, request.file[0], &o->a);
    if (!status) status = open_side(b, o, 1, request.file[1], &o->b);
    if (!status) status = check_variants(a, b);
    if (!status) status = share_choice(a, b);
    if (status) return status;
    share_leaves(a, b);
    struct syi_lockstep_job job = {
        .side = {cli_launch(&a->options, &a->config), cli_launch(&b->options, &b->config)},
        .use = {a->use, b->use},
        .steps = o->steps ? o->steps : 1,
        .tolerance = o->tolerance};
    if (syi_lockstep_run(&job, &result, &err)) return cli_fail(&err);
    return print(o, &request, &result);
}

int cli_diff(const struct cli_options *o)
{
    struct sy_error err = {0};
    struct side *side = syi_alloc(2 * sizeof *side, &err);
    if (!side) return cli_fail(&err);
    int status = compare(o, &side[0], &side[1]);
    syi_free(side);
    return status;
}
