/* SPDX-License-Identifier: Apache-2.0 */
/* Bindings of gin become keys of a run file, by the table of gin_keys.def. What T5X does where a file says nothing is written,
 * too. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/optimizers.h"
#include "base/run_config.h"
#include "import/gin.h"

enum how { VALUE, CHOICE, ACTIVATIONS, LENGTHS, FACTOR, TASK, WIRING, NONE };

static const struct gin_key {
    const char *scope, *name, *key, *extra; /* see gin_keys.def */
    enum how how;
} table[] = {
#define GIN_KEY(scope, name, how, key, extra) {scope, name, key, extra, how},
#include "import/gin_keys.def"
};

/* What T5X has where no binding says otherwise, and switchyard has not; class: only where a binding of it is there. */
static const struct {
    const char *class, *key, *value;
} t5x_default[] = {
    {"", "run.compat", "t5x"},
    {"", "model.init_scale", "0"},
    {"", "loss.z_loss", "0"},
    {"", "loss.loss_normalizing_factor", "none"},
    {"", "train.clip_norm", "0"},
    {"", "moe.router_z_loss_factor", "0"},
    {"", "optimizer.name", "adafactor"},
    {"T5Config", "model.d_model", "512"},
    {"T5Config", "model.num_heads", "8"},
    {"T5Config", "model.num_encoder_layers", "6"},
    {"T5Config", "model.num_decoder_layers", "6"},
    {"T5Config", "model.head_dim", "64"},
    {"T5Config", "model.d_ff", "2048"},
    {"T5Config", "model.mlp_activations", "relu"},
    {"T5Config", "model.dropout_rate", "0.1"},
    {"create_learning_rate_scheduler", "train.lr_factors", "constant * linear_warmup * rsqrt_decay"},
    {"create_learning_rate_scheduler", "train.learning_rate", "0.5"},
    {"create_learning_rate_scheduler", "train.warmup_steps", "1000"},
};

/* Defaults of optax's optimizers that are others than switchyard's. */
static const struct {
    int optimizer;
    const char *key, *value;
} optax_default[] = {
    {SYI_OPTIMIZER_ADAMW, "optimizer.b2", "0.999"},
    {SYI_OPTIMIZER_ADAMW, "optimizer.weight_decay", "1e-4"},
    {SYI_OPTIMIZER_LION, "optimizer.weight_decay", "1e-3"},
    {SYI_OPTIMIZER_LAMB, "optimizer.weight_decay_mask", "[\"*\"]"},
    {SYI_OPTIMIZER_LAMB, "optimizer.trust_ratio_mask", "[\"*\"]"},
    {SYI_OPTIMIZER_LARS, "optimizer.weight_decay_mask", "[\"*\"]"},
    {SYI_OPTIMIZER_LARS, "optimizer.trust_ratio_mask", "[\"*\"]"},
};

/* Keys without which a run file is somebody else's model or run. */
static const char *const wanted[] = {
    "model.vocab_size",         "model.d_model",         "model.d_ff",
    "model.num_heads",          "model.head_dim",        "model.num_encoder_layers",
    "model.num_decoder_layers", "data.max_input_length", "data.max_target_length",
    "data.batch_size",          "train.steps",           "train.lr_factors"};

enum { MOST_KEYS = 256, FACTORS = 3, KEY_TEXT = 512 };

/* A key that has a value, and from where. */
struct set_key {
    char name[SYI_KEY];
    const struct syi_gin_binding *from; /* NULL: what T5X does by default */
};

struct conversion {
    const struct syi_gin *gin;
    struct syi_config config;
    struct set_key set[MOST_KEYS];
    int n_set;
    struct {
        const char *factor, *argument; /* [length of the name of the factor in factor] */
        char value[SYI_NUMBER_BYTES * 2];
    } factor[FACTORS];
    int n_factors;
    struct syi_text task;  /* its name */
    struct syi_text notes; /* lines of what was not converted */
    struct sy_error *err;
};

/* A binding's name taken apart; all borrowed of gin but what is copied. */
struct name_parts {
    char scope[64], last[128]; /* innermost scope; "Class.parameter" or a macro */
    char class[128];           /* "" of a macro */
    const char *parameter;
};

/* ---- names ---- */

static struct name_parts take_apart(const char *name)
{
    struct name_parts parts = {.parameter = ""};
    const char *slash = strrchr(name, '/'), *scope = slash, *rest = slash ? slash + 1 : name;
    if (slash) {
        while (scope > name && scope[-1] != '/') scope--;
        snprintf(parts.scope, sizeof parts.scope, "%.*s", (int)(slash - scope), scope);
    }
    const char *dot = strrchr(rest, '.'), *class = dot;
    if (dot) {
        while (class > rest && class[-1] != '.') class --;
        snprintf(parts.class, sizeof parts.class, "%.*s", (int)(dot - class), class);
        parts.parameter = dot + 1;
        rest = class;
    }
    snprintf(parts.last, sizeof parts.last, "%s", rest);
    return parts;
}

static const char *text_of(const struct conversion *c, uint32_t value)
{
    return syi_gin_string(c->gin, c->gin->nodes[value].text);
}

static const char *name_of(const struct conversion *c, const struct syi_gin_binding *binding)
{
    return syi_gin_string(c->gin, binding->name);
}

static const struct gin_key *find_row(const struct name_parts *name)
{
    for (size_t i = 0; i < SYI_COUNT(table); i++) {
        if (*table[i].scope && *name->scope && strcmp(table[i].scope, name->scope)) continue;
        if (*table[i].scope && !*name->scope && strcmp(table[i].scope, "train")) continue;
        if (syi_pattern_match(table[i].name, name->last)) return &table[i];
    }
    return NULL;
}

static const char *nearest_row(const struct name_parts *name)
{
    const char *best = table[0].name;
    for (size_t i = 1; i < SYI_COUNT(table); i++)
        if (!strchr(table[i].name, '*') &&
            syi_edit_distance(name->last, table[i].name) < syi_edit_distance(name->last, best))
            best = table[i].name;
    return best;
}

/* ---- what is said ---- */

/* Appends a text with its control characters as '?': a line of a file stays one. */
static void put_line(struct syi_text *out, const char *text)
{
    for (; *text; text++) syi_text_append(out, (unsigned char)*text < 32 || *text == 127 ? "?" : text, 1);
    syi_text_puts(out, "\n");
}

static void note(struct conversion *c, uint32_t file, int line, const char *what, const char *why)
{
    struct syi_text text = {0};
    syi_text_printf(&text, "not converted: %s:%d: %s: %s", syi_gin_string(c->gin, file), line, what, why);
    if (text.data) put_line(&c->notes, text.data);
    if (text.status) c->notes.status = text.status;
    syi_text_free(&text);
}

static void note_binding(struct conversion *c, const struct syi_gin_binding *binding, const char *why)
{
    struct syi_text text = {0};
    syi_text_printf(&text, "%s = ", name_of(c, binding));
    syi_gin_print(c->gin, binding->value, &text);
    note(c, binding->file, binding->line, text.data ? text.data : "", why);
    if (text.status) c->notes.status = text.status;
    syi_text_free(&text);
}

/* ---- values ---- */

static struct set_key *find_set(struct conversion *c, const char *key)
{
    for (int i = 0; i < c->n_set; i++)
        if (!strcmp(c->set[i].name, key)) return &c->set[i];
    return NULL;
}

/* Sets the key; a value that the run file refuses is a note. from: NULL for a default. */
static void set(struct conversion *c, const struct syi_gin_binding *from, const char *key, const char *value)
{
    char reason[SYI_REASON];
    struct syi_key parsed;
    struct set_key *known = find_set(c, key);
    int status = syi_key_parse(key, &parsed, reason);
    if (!status) status = syi_config_assign(&c->config, &parsed, value, true, reason);
    if (status == SY_ENOMEM) c->notes.status = status;
    if (status) {
        if (from) note_binding(c, from, reason);
        return;
    }
    if (!known && c->n_set < MOST_KEYS) known = &c->set[c->n_set++];
    if (!known) return; /* there are fewer keys in the table */
    snprintf(known->name, sizeof known->name, "%s", key);
    known->from = from;
}

static int is_word(const struct conversion *c, uint32_t value, const char *word)
{
    return c->gin->nodes[value].kind == SYI_GIN_WORD && !strcmp(text_of(c, value), word);
}

/* The text of a number, a word or a string as a run file has it; NULL: something else. */
static const char *plain_text(const struct conversion *c, uint32_t value)
{
    enum syi_gin_kind kind = c->gin->nodes[value].kind;
    if (is_word(c, value, "True")) return "true";
    if (is_word(c, value, "False")) return "false";
    return kind == SYI_GIN_NUMBER || kind == SYI_GIN_STRING ? text_of(c, value) : NULL;
}

/* "theirs=ours ..." looked up; a name that is not in the list is itself. Returns 0 where ours is empty: there is none. */
static int translate(const char *list, const char *name, char *out, size_t bytes)
{
    size_t length = strlen(name);
    snprintf(out, bytes, "%s", name);
    for (const char *at = list; at && *at; at += strcspn(at, " "), at += *at == ' ') {
        if (strncmp(at, name, length) || at[length] != '=') continue;
        size_t n = strcspn(at + length + 1, " ");
        snprintf(out, bytes, "%.*s", (int)n, at + length + 1);
        return n > 0;
    }
    return 1;
}

static void set_choice(struct conversion *c, const struct syi_gin_binding *from, const struct gin_key *row,
                       uint32_t value)
{
    char ours[KEY_TEXT];
    const char *text = text_of(c, value), *end;
    enum syi_gin_kind kind = c->gin->nodes[value].kind;
    if (kind == SYI_GIN_LIST || kind == SYI_GIN_DICT) {
        note_binding(c, from, "a name was expected");
        return;
    }
    /* of a name the last part */
    while (kind != SYI_GIN_NUMBER && (end = strpbrk(text, "./"))) text = end + 1;
    if (translate(row->extra, text, ours, sizeof ours))
        set(c, from, row->key, ours);
    else
        note_binding(c, from, "see vocabulary.kind and vocabulary.file");
}

static void set_activations(struct conversion *c, const struct syi_gin_binding *from,
                            const struct gin_key *row, uint32_t value)
{
    char joined[KEY_TEXT] = "";
    size_t n = 0;
    const struct syi_gin_node *node = &c->gin->nodes[value];
    if (node->kind == SYI_GIN_STRING) snprintf(joined, sizeof joined, "%s", text_of(c, value));
    for (uint32_t child = node->first; child != SYI_GIN_NONE && n < sizeof joined;
         child = c->gin->nodes[child].next) {
        uint32_t item = syi_gin_resolve(c->gin, child);
        const char *text = item == SYI_GIN_NONE ? NULL : plain_text(c, item);
        if (text && !strcmp(text, "swish")) text = "silu"; /* JAX has both names */
        n += (size_t)snprintf(joined + n, sizeof joined - n, "%s%s", n ? "," : "", text ? text : "?");
    }
    set(c, from, row->key, joined);
}

/* One entry of {'inputs': 512, 'targets': 114}. */
static void set_length(struct conversion *c, const struct syi_gin_binding *from, uint32_t key, uint32_t value)
{
    const char *name = key == SYI_GIN_NONE ? NULL : plain_text(c, key);
    const char *length = value == SYI_GIN_NONE ? NULL : plain_text(c, value);
    char why[KEY_TEXT];
    if (name && length && !strcmp(name, "inputs")) {
        set(c, from, "data.max_input_length", length);
    } else if (name && length && !strcmp(name, "targets")) {
        set(c, from, "data.max_target_length", length);
    } else {
        snprintf(why, sizeof why, "%.100s is no feature with a length: those are inputs and targets",
                 name ? name : "this");
        note_binding(c, from, why);
    }
}

static void set_lengths(struct conversion *c, const struct syi_gin_binding *from, uint32_t value)
{
    const struct syi_gin *gin = c->gin;
    if (gin->nodes[value].kind != SYI_GIN_DICT) {
        note_binding(c, from, "a dictionary of features and lengths was expected");
        return;
    }
    for (uint32_t key = gin->nodes[value].first; key != SYI_GIN_NONE;
         key = gin->nodes[gin->nodes[key].next].next)
        set_length(c, from, syi_gin_resolve(gin, key), syi_gin_resolve(gin, gin->nodes[key].next));
}

static void set_value(struct conversion *c, const struct syi_gin_binding *from, const char *key,
                      const char *none, uint32_t value)
{
    const char *text = plain_text(c, value);
    if (is_word(c, value, "None")) {
        if (none) set(c, from, key, none);
        return;
    }
    if (text)
        set(c, from, key, text);
    else
        note_binding(c, from, "a number, a string, True or False was expected");
}

static void set_factor(struct conversion *c, const struct syi_gin_binding *from, const struct gin_key *row,
                       uint32_t value)
{
    const char *text = plain_text(c, value);
    int i = 0;
    if (!text || c->gin->nodes[value].kind != SYI_GIN_NUMBER) {
        note_binding(c, from, "a number was expected");
        return;
    }
    while (i < c->n_factors && strcmp(c->factor[i].factor, row->key)) i++;
    if (i == c->n_factors) c->n_factors++;
    c->factor[i].factor = row->key;
    c->factor[i].argument = strchr(row->key, '.') + 1;
    snprintf(c->factor[i].value, sizeof c->factor[i].value, "%s", text);
}

static int is_nothing(const struct conversion *c, uint32_t value)
{
    const struct syi_gin_node *node = &c->gin->nodes[value];
    if (node->kind == SYI_GIN_LIST || node->kind == SYI_GIN_DICT) return !node->children;
    return is_word(c, value, "None") || is_word(c, value, "False") ||
           (node->kind == SYI_GIN_STRING && !*text_of(c, value));
}

/* ---- bindings ---- */

static void convert_row(struct conversion *c, const struct syi_gin_binding *binding,
                        const struct gin_key *row, uint32_t value)
{
    const char *text = plain_text(c, value);
    switch (row->how) {
    case VALUE: set_value(c, binding, row->key, row->extra, value); return;
    case CHOICE: set_choice(c, binding, row, value); return;
    case ACTIVATIONS: set_activations(c, binding, row, value); return;
    case LENGTHS: set_lengths(c, binding, value); return;
    case FACTOR: set_factor(c, binding, row, value); return;
    case TASK:
        c->task.length = 0;
        if (text) syi_text_puts(&c->task, text);
        note_binding(
            c, binding,
            "tasks of seqio are Python: write its examples into files, see [task.NAME] and doc/data.md");
        return;
    case WIRING: return;
    case NONE:
        if (!is_nothing(c, value)) note_binding(c, binding, row->extra);
        return;
    }
}

static int is_referred_to(const struct conversion *c, const char *name)
{
    for (size_t i = 0; i < c->gin->n_nodes; i++)
        if (c->gin->nodes[i].kind == SYI_GIN_MACRO && !strcmp(text_of(c, (uint32_t)i), name)) return 1;
    return 0;
}

/* ---- optimizers of optax ---- */

/* The last binding of "CLASS.PARAMETER"; NULL: there is none. */
static const struct syi_gin_binding *find_binding(const struct conversion *c, const char *class,
                                                  const char *parameter)
{
    for (size_t i = c->gin->n_bindings; i-- > 0;) {
        struct name_parts name = take_apart(name_of(c, &c->gin->bindings[i]));
        if (!strcmp(name.class, class) && !strcmp(name.parameter, parameter)) return &c->gin->bindings[i];
    }
    return NULL;
}

/* What a value refers to, "x" of @module.x(); "": it refers to nothing. */
static const char *referred_to(const struct conversion *c, uint32_t value)
{
    if (value == SYI_GIN_NONE || c->gin->nodes[value].kind != SYI_GIN_REFERENCE) return "";
    const char *text = text_of(c, value), *end;
    while ((end = strpbrk(text, "./"))) text = end + 1;
    return text;
}

/* One of the transformations of `chain`: the optimizer, or what clips before it. */
static void take_transformation(struct conversion *c, const struct syi_gin_binding *chain, const char *name)
{
    char reason[SYI_REASON], why[KEY_TEXT];
    struct syi_key key;
    const struct syi_gin_binding *norm = find_binding(c, "clip_by_global_norm", "max_norm");
    if (norm && !strcmp(name, "clip_by_global_norm")) {
        uint32_t value = syi_gin_resolve(c->gin, norm->value);
        if (value != SYI_GIN_NONE) set_value(c, norm, "train.clip_norm", NULL, value);
        return;
    }
    if (*name && !syi_key_parse("optimizer.name", &key, reason) &&
        !syi_config_assign(&c->config, &key, name, true, reason)) {
        set(c, chain, "optimizer.name", name);
        return;
    }
    snprintf(
        why, sizeof why,
        "%.60s is left out of it: to have it, write optimizer.name = \"chain\" and optimizer.chain, whose "
        "transforms have optax's names",
        *name ? name : "what is no reference");
    note_binding(c, chain, why);
}

/* optimizers.chain: the optimizer among its transformations is that of the run. */
static void take_chain(struct conversion *c)
{
    const struct syi_gin_binding *chain = find_binding(c, "chain", "transformations");
    uint32_t list = chain ? syi_gin_resolve(c->gin, chain->value) : SYI_GIN_NONE;
    if (c->config.optimizer.part[0].name != SYI_OPTIMIZER_CHAIN || list == SYI_GIN_NONE ||
        c->gin->nodes[list].kind != SYI_GIN_LIST)
        return;
    for (uint32_t i = c->gin->nodes[list].first; i != SYI_GIN_NONE; i = c->gin->nodes[i].next)
        take_transformation(c, chain, referred_to(c, syi_gin_resolve(c->gin, i)));
}

static void set_optax_defaults(struct conversion *c)
{
    for (size_t i = 0; i < SYI_COUNT(optax_default); i++)
        if (optax_default[i].optimizer == c->config.optimizer.part[0].name)
            set(c, NULL, optax_default[i].key, optax_default[i].value);
}

/* A number that is bound to CLASS.PARAMETER. */
static double number_of(const struct conversion *c, const char *class, const char *parameter,
                        double otherwise)
{
    const struct syi_gin_binding *binding = find_binding(c, class, parameter);
    uint32_t value = binding ? syi_gin_resolve(c->gin, binding->value) : SYI_GIN_NONE;
    if (value == SYI_GIN_NONE || c->gin->nodes[value].kind != SYI_GIN_NUMBER) return otherwise;
    return strtod(text_of(c, value), NULL);
}

static void set_number(struct conversion *c, const struct syi_gin_binding *from, const char *key,
                       double value)
{
    char text[SYI_NUMBER_BYTES];
    syi_format_double(text, value);
    set(c, from, key, text);
}

/* The rate is that of the optimizer: what T5X's own schedule would be counts for nothing. */
static void set_rate(struct conversion *c, const struct syi_gin_binding *from, double rate, double warmup,
                     const char *factors)
{
    c->n_factors = 0;
    set_number(c, from, "train.learning_rate", rate);
    set_number(c, from, "train.warmup_steps", warmup);
    set(c, from, "train.lr_factors", factors);
    set(c, from, "train.min_learning_rate", "0");
    if (find_set(c, "train.lr_step_offset")) set(c, from, "train.lr_step_offset", "0");
}

/* As optax: a straight line from 0 to the peak, then half a cosine down to the end. */
static int set_warmup_cosine(struct conversion *c, const struct syi_gin_binding *from)
{
    static const char name[] = "warmup_cosine_decay_schedule";
    double peak = number_of(c, name, "peak_value", 0), warmup = number_of(c, name, "warmup_steps", -1);
    double steps = number_of(c, name, "decay_steps", 0), end = number_of(c, name, "end_value", 0);
    char factors[KEY_TEXT];
    if (number_of(c, name, "init_value", 1) != 0 || number_of(c, name, "exponent", 1) != 1) return 0;
    if (!(peak > 0) || !(warmup >= 0) || !(steps > warmup) || !(end >= 0 && end <= peak)) return 0;
    snprintf(factors, sizeof factors,
             "constant * linear_warmup * cosine(decay_steps=%.0f, alpha=%.9g, transition_begin=%.0f)",
             steps - warmup, end / peak, warmup);
    set_rate(c, from, peak, warmup, factors);
    return 1;
}

/* An optimizer of optax has its own learning rate, a number or a schedule. */
static void take_rate(struct conversion *c)
{
    int optimizer = c->config.optimizer.part[0].name;
    const struct syi_gin_binding *rate =
        find_binding(c, syi_optimizer_info(optimizer)->name, "learning_rate");
    uint32_t value = rate ? syi_gin_resolve(c->gin, rate->value) : SYI_GIN_NONE;
    const char *schedule = referred_to(c, value);
    if (!rate || optimizer == SYI_OPTIMIZER_ADAFACTOR || !strcmp(schedule, "create_learning_rate_scheduler"))
        return;
    if (value != SYI_GIN_NONE && c->gin->nodes[value].kind == SYI_GIN_NUMBER)
        set_rate(c, rate, strtod(text_of(c, value), NULL), 0, "constant");
    else if (strcmp(schedule, "warmup_cosine_decay_schedule") || !set_warmup_cosine(c, rate))
        note_binding(c, rate, "write it as factors of train.lr_factors, among which are those of optax");
}

/* An argument of the optimizer that is in force, whose keys have optax's names. */
static int convert_optax(struct conversion *c, const struct syi_gin_binding *binding,
                         const struct name_parts *name, uint32_t value)
{
    char key[KEY_TEXT];
    int optimizer = c->config.optimizer.part[0].name;
    if (optimizer == SYI_OPTIMIZER_ADAFACTOR || strcmp(syi_optimizer_info(optimizer)->name, name->class))
        return 0;
    if (!strcmp(name->parameter, "learning_rate")) return 1; /* take_rate */
    if (!syi_optimizer_takes(optimizer, name->parameter)) return 0;
    snprintf(key, sizeof key, "optimizer.%s", name->parameter);
    set_value(c, binding, key, NULL, value);
    return 1;
}

static void note_unknown(struct conversion *c, const struct syi_gin_binding *binding,
                         const struct name_parts *name)
{
    char why[KEY_TEXT] = "no key for it is known";
    const char *nearest = nearest_row(name);
    if (syi_is_near(name->last, nearest))
        snprintf(why, sizeof why, "no key for it is known; the nearest that has one: %s", nearest);
    note_binding(c, binding, why);
}

/* Whether a key of [optimizer] is one that the optimizer in force does not take. */
static int is_of_another(const struct conversion *c, const char *key)
{
    static const char section[] = "optimizer.";
    return key && !strncmp(key, section, sizeof section - 1) &&
           !syi_optimizer_takes(c->config.optimizer.part[0].name, key + sizeof section - 1);
}

static void convert_binding(struct conversion *c, const struct syi_gin_binding *binding,
                            const struct gin_key *row, const struct name_parts *name)
{
    uint32_t value = syi_gin_resolve(c->gin, binding->value);
    if (row && row->how == WIRING) return;
    if (value == SYI_GIN_NONE) {
        /* %gin.REQUIRED, or a constant of Python: a choice may take its name */
        if (row && row->how == CHOICE && strcmp(text_of(c, binding->value), "gin.REQUIRED"))
            set_choice(c, binding, row, binding->value);
        else
            note_binding(c, binding, "the macro has no value in these files");
    } else if (!row && !convert_optax(c, binding, name, value)) {
        note_unknown(c, binding, name);
    } else if (row && is_of_another(c, row->key)) {
        note_binding(c, binding, "the optimizer of the run is another");
    } else if (row) {
        convert_row(c, binding, row, value);
    }
}

enum pass { OPTIMIZERS, MACROS, BINDINGS };

static void convert_all(struct conversion *c, enum pass pass)
{
    for (size_t i = 0; i < c->gin->n_bindings; i++) {
        const struct syi_gin_binding *binding = &c->gin->bindings[i];
        struct name_parts name = take_apart(name_of(c, binding));
        const struct gin_key *row = find_row(&name);
        int optimizer = row && row->key && !strcmp(row->key, "optimizer.name");
        int macro = !*name.class;
        if (optimizer != (pass == OPTIMIZERS) || (!optimizer && macro != (pass == MACROS))) continue;
        if (macro && is_referred_to(c, name_of(c, binding))) continue;
        convert_binding(c, binding, row, &name);
    }
}

/* ---- after all bindings ---- */

static int has_class(const struct conversion *c, const char *class)
{
    for (size_t i = 0; i < c->gin->n_bindings; i++)
        if (!strcmp(take_apart(name_of(c, &c->gin->bindings[i])).class, class)) return 1;
    return !*class;
}

static void set_defaults(struct conversion *c)
{
    for (size_t i = 0; i < SYI_COUNT(t5x_default); i++)
        if (has_class(c, t5x_default[i].class)) set(c, NULL, t5x_default[i].key, t5x_default[i].value);
}

/* Writes "cosine_decay" of train.lr_factors as "cosine_decay(steps_per_cycle=N)" where a binding gave N. */
static void finish_factors(struct conversion *c)
{
    struct set_key *key = find_set(c, "train.lr_factors");
    struct syi_text out = {0};
    if (!key || !c->n_factors) return;
    for (const char *at = c->config.train.lr_factors; *at;) {
        at += strspn(at, " *");
        size_t n = strcspn(at, " *");
        const char *open = "(";
        if (!n) break;
        syi_text_printf(&out, "%s%.*s", out.length ? " * " : "", (int)n, at);
        for (int i = 0; i < c->n_factors; i++) {
            if (strncmp(c->factor[i].factor, at, n) || c->factor[i].factor[n] != '.') continue;
            syi_text_printf(&out, "%s%s=%s", open, c->factor[i].argument, c->factor[i].value);
            open = ", ";
        }
        if (*open == ',') syi_text_puts(&out, ")");
        at += n;
    }
    if (out.data) set(c, key->from, "train.lr_factors", out.data);
    if (out.status) c->notes.status = out.status;
    syi_text_free(&out);
}

static void note_rest(struct conversion *c)
{
    struct syi_text missing = {0};
    struct sy_error why = {0};
    for (size_t i = 0; i < c->gin->n_missing; i++)
        note(c, c->gin->missing[i].file, c->gin->missing[i].line,
             syi_gin_string(c->gin, c->gin->missing[i].text),
             "the included file is not there: what it says is missing here");
    for (size_t i = 0; i < SYI_COUNT(wanted); i++)
        if (!find_set(c, wanted[i])) syi_text_printf(&missing, "%s%s", missing.length ? ", " : "", wanted[i]);
    if (missing.data) {
        syi_text_puts(&c->notes, "nothing says, so that switchyard's defaults hold: ");
        put_line(&c->notes, missing.data);
    }
    if (missing.status) c->notes.status = missing.status;
    syi_text_free(&missing);
    int status = syi_config_validate(&c->config, &why);
    if (status == SY_ENOMEM) c->notes.status = status;
    if (status) {
        syi_text_puts(&c->notes, "not a run file yet: ");
        put_line(&c->notes, why.text);
    }
}

/* ---- the run file ---- */

static void print_key(struct conversion *c, const struct set_key *set_key, const char *option,
                      struct syi_text *out)
{
    struct syi_text value = {0};
    int status = syi_config_get_text(&c->config, set_key->name, &value, c->err);
    syi_text_printf(out, "%s = %s  # ", option, status || !value.data ? "" : value.data);
    if (set_key->from)
        put_line(out, name_of(c, set_key->from));
    else
        syi_text_puts(out, "of T5X\n");
    if (status || value.status) out->status = SY_ENOMEM;
    syi_text_free(&value);
}

static void print_section(struct conversion *c, const struct syi_part_kind *kind, struct syi_text *out)
{
    int keys = 0;
    for (size_t i = 0; i < kind->n_options; i++) {
        char name[SYI_KEY];
        syi_key_text(kind, "", &kind->options[i], name);
        const struct set_key *set_key = find_set(c, name);
        if (!set_key) continue;
        if (!keys++) syi_text_printf(out, "\n[%s]\n", kind->name);
        print_key(c, set_key, kind->options[i].name, out);
    }
}

/* The lines of a text, each after "# ". */
static void print_comments(const struct syi_text *lines, struct syi_text *out)
{
    for (const char *at = lines->data; at && *at;) {
        size_t n = strcspn(at, "\n");
        syi_text_printf(out, "# %.*s\n", (int)n, at);
        at += n + 1;
    }
}

static void print(struct conversion *c, const char *path, struct syi_text *out)
{
    size_t n;
    const struct syi_part_kind *kind = syi_config_kinds(&n);
    syi_text_puts(out, "# Made by `switchyard convert-gin` of ");
    put_line(out, path);
    print_comments(&c->notes, out);
    for (size_t i = 0; i < n; i++) print_section(c, &kind[i], out);
    syi_text_puts(out, "\n# The examples");
    if (c->task.length) {
        syi_text_puts(out, " of ");
        for (const char *at = c->task.data; *at; at++)
            syi_text_append(out, (unsigned char)*at < 32 ? "?" : at, 1);
    }
    syi_text_puts(out,
                  ", an input, a TAB and a target on each line:\n# [task.main]\n# train = \"train.tsv\"\n"
                  "# valid = \"valid.tsv\"\n");
}

int syi_gin_convert(const struct syi_gin *gin, const char *path, struct syi_text *run_file,
                    struct syi_text *warnings, struct sy_error *err)
{
    struct conversion *c = syi_alloc(sizeof *c, err);
    if (!c) return SY_ENOMEM;
    c->gin = gin;
    c->err = err;
    int status = syi_config_defaults(&c->config, err);
    if (!status) {
        set_defaults(c);
        convert_all(c, OPTIMIZERS);
        take_chain(c);
        set_optax_defaults(c);
        convert_all(c, MACROS);
        convert_all(c, BINDINGS);
        take_rate(c);
        finish_factors(c);
        note_rest(c);
        print(c, path, run_file);
        if (c->notes.length) syi_text_append(warnings, c->notes.data, c->notes.length);
        status = syi_text_status(&c->notes, err);
    }
    if (!status) status = syi_text_status(&c->task, err);
    if (!status) status = syi_text_status(run_file, err);
    if (!status) status = syi_text_status(warnings, err);
    syi_text_free(&c->notes);
    syi_text_free(&c->task);
    syi_free(c);
    return status;
}
