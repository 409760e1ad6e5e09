/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns in [optimizer] against the parameters of a model: those that match nothing, and parameters that two optimizers
 * match. */
#include "config.h"

#include <limits.h>
#include <string.h>

#include "base/optimizers.h"
#include "model/model.h"
#include "optim/optim.h"

/* ---- names that a pattern may have been meant for ---- */

enum { NAMES = 3, PIECE = 64 };

/* Parameters whose paths are nearest to a pattern. */
struct near {
    int n, distance;
    const char *name[NAMES]; /* [n] */
};

/* The next run of bytes that are none of `apart`, into piece; 0: there is none. */
static int next_piece(const char **at, const char *apart, char piece[PIECE])
{
    *at += strspn(*at, apart);
    size_t n = strcspn(*at, apart);
    snprintf(piece, PIECE, "%.*s", (int)(n < PIECE ? n : PIECE - 1), *at);
    *at += n;
    return n > 0;
}

/* How far a literal piece of a pattern is from the nearest component of the path, at most its own length; *found: that one
 * may be meant. */
static int piece_distance(const char *piece, const char *path, int *found)
{
    int least = (int)strlen(piece);
    char component[PIECE];
    for (const char *at = path; next_piece(&at, "/", component);) {
        int distance = strstr(component, piece) ? 0 : syi_edit_distance(piece, component);
        if (distance < least) least = distance;
        if (!distance || syi_is_near(piece, component)) *found = 1;
    }
    return least;
}

static void look_at(struct near *near, const char *pattern, const char *path)
{
    int distance = 0, found = 0;
    char piece[PIECE];
    for (const char *at = pattern; next_piece(&at, "*?/", piece);)
        distance += piece_distance(piece, path, &found);
    if (!found || (near->n && distance > near->distance)) return;
    if (!near->n || distance < near->distance) *near = (struct near){.distance = distance};
    if (near->n < NAMES) near->name[near->n++] = path;
}

/* ---- every list of patterns ---- */

struct walk {
    const struct syi_model *model;
    const struct syi_optimizer_part *part;
};

/* key: what the pattern stands in, after the part. */
static void look_for(const struct walk *w, const char *key, const char *pattern)
{
    struct near near = {0};
    const char *part = w->part->name_of_part;
    char names[3 * 200] = "";
    for (size_t i = 0; i < w->model->n; i++) {
        if (syi_pattern_match(pattern, w->model->param[i].name)) return;
        look_at(&near, pattern, w->model->param[i].name);
    }
    for (int i = 0; i < near.n; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%.180s", i ? ", " : ", the nearest: ", near.name[i]);
    }
    syi_log(
        SY_LOG_WARN,
        "optimizer%s%s.%s: \"%.200s\" matches no parameter of the model%s; `switchyard plan --tensors` prints their "
        "names",
        *part ? "." : "", part, key, pattern, names);
}

/* A name belongs to the list by the first pattern for it: where all before the last begin with ! and so does that, no name
 * does. */
static void look_for_any(const struct walk *w, const char *key, const struct syi_strings *list)
{
    for (int i = 0; i < list->n; i++)
        if (*syi_strings_at(list, i) != '!') return;
    if (list->n)
        syi_log(
            SY_LOG_WARN,
            "optimizer%s%s.%s: a pattern with ! leaves names out of those that follow, and none follows: it matches no "
            "parameter; add \"*\" at the end",
            *w->part->name_of_part ? "." : "", w->part->name_of_part, key);
}

/* A list of patterns, or of rules "PATTERN: WORDS". */
static void walk_list(const struct walk *w, const char *key, int rules, const struct syi_strings *list)
{
    look_for_any(w, key, list);
    for (int i = 0; i < list->n; i++) {
        char pattern[SYI_CONFIG_STRING];
        const char *text = syi_strings_at(list, i), *end = rules ? strrchr(text, ':') : NULL;
        text += !rules && *text == '!';
        snprintf(pattern, sizeof pattern, "%.*s", end ? (int)(end - text) : (int)strlen(text), text);
        look_for(w, key, pattern);
    }
}

/* before: "" or what the arguments are of, as "chain: masked: ". */
static void walk_options(const struct walk *w, const char *before, const struct syi_option *options, size_t n,
                         const void *values)
{
    for (size_t i = 0; i < n; i++) {
        const struct syi_strings *list = (const void *)((const char *)values + options[i].offset);
        char key[96];
        const char *name = options[i].name;
        int rules = !strcmp(name, "factor_map") || !strcmp(name, "parameter_scale_rules");
        if (options[i].type != SYI_OPTION_STRINGS || !strcmp(name, "chain")) continue;
        if (!*before && !syi_optimizer_takes(w->part->name, name)) continue;
        if (!strcmp(options[i].default_text, "auto") && syi_strings_auto(list)) continue;
        snprintf(key, sizeof key, "%s%s", before, name);
        walk_list(w, key, rules, list);
    }
}

static void walk_chain(const struct walk *w)
{
    char reason[SYI_TERM_REASON];
    struct syi_terms *terms = syi_alloc(sizeof *terms, NULL);
    int good = terms && !syi_optimizer_read_chain(w->part, terms, reason);
    for (int t = 0; good && t < terms->n; t++) {
        const struct syi_term_kind *kind = terms->term[t].kind;
        char before[80];
        snprintf(before, sizeof before, "chain: %s: ", kind->name);
        walk_options(w, before, kind->arguments, kind->n_arguments, terms->term[t].values);
    }
    syi_free(terms);
}

void syi_warn_of_patterns(const struct syi_config *config, const struct syi_model *model)
{
    const struct syi_part_kind *kind = syi_optimizer_kind();
    for (int i = 0; i < config->optimizer.n; i++) {
        const struct walk w = {model, &config->optimizer.part[i]};
        walk_options(&w, "", kind->options, kind->n_options, w.part);
        if (w.part->name == SYI_OPTIMIZER_CHAIN) walk_chain(&w);
    }
}

/* ---- parameters that two optimizers match ---- */

/* The first pattern of the part for that name. */
static const char *pattern_for(const struct syi_optimizer_part *part, const char *name)
{
    for (int k = 0; k < part->match.n; k++)
        if (syi_pattern_match(syi_strings_at(&part->match, k), name)) return syi_strings_at(&part->match, k);
    return "";
}

static int check_overlap(const struct syi_config *config, const char *name, struct sy_error *err)
{
    const struct syi_optimizer_part *first = NULL;
    for (int i = 1; i < config->optimizer.n; i++) {
        const struct syi_optimizer_part *part = &config->optimizer.part[i];
        if (!syi_mask_match(&part->match, name)) continue;
        if (first)
            return syi_error(
                err, SY_EMISMATCH,
                "parameter %s is matched by optimizer.%s.match (\"%.80s\") and by optimizer.%s.match "
                "(\"%.80s\"): make the patterns narrower",
                name, first->name_of_part, pattern_for(first, name), part->name_of_part,
                pattern_for(part, name));
        first = part;
    }
    return SY_OK;
}

int syi_check_overlaps(const struct syi_config *config, const struct syi_model *model, struct sy_error *err)
{
    int status = SY_OK;
    for (size_t i = 0; i < model->n && !status; i++)
        status = check_overlap(config, model->param[i].name, err);
    return status;
}
