/* SPDX-License-Identifier: Apache-2.0 */
/* Bindings of gin become keys of a run file, by the table of gin_keys.def. What T5X does where a file says nothing is written,
 * too. */
#include "config.h"

#include <string.h>

#include "base/optimizers.h"
#include "import/gin_conversion.h"

enum how { VALUE, CHOICE, ACTIVATIONS, LENGTHS, FACTOR, TASK, DECODER, LATER, WIRING, PARTS, OFF, NONE };

static const struct gin_key {
    const char *scope, *name, *key, *extra; /* see gin_keys.def */
    enum how how;
} table[] = {
#define GIN_KEY(scope, name, how, key, extra) {scope, name, key, extra, how},
#include "import/gin_keys.def"
};

/* What T5X has where no binding says otherwise, and switchyard has not; class: only where a binding or a value names it, or
 * it is what T5X decodes with. */
static const struct {
    const char *class, *key, *value;
} t5x_default[] = {
    {"", "run.compat", "t5x"},
    {"", "model.init_scale", "0"},
    {"", "loss.z_loss", "0"},
    {"", "loss.loss_normalizing_factor", "none"},
    {"", "train.clip_norm", "0"},
    {"", "moe.aux_loss_factor", "0"},
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
    {"Decoder", "model.logits_via_embedding", "true"},
    {"SparseDecoder", "model.logits_via_embedding", "true"},
    {"RouterWeights", "moe.router_use_bias", "true"},
    {"create_learning_rate_scheduler", "train.lr_factors", "constant * linear_warmup * rsqrt_decay"},
    {"create_learning_rate_scheduler", "train.learning_rate", "0.5"},
    {"create_learning_rate_scheduler", "train.warmup_steps", "1000"},
    {"temperature_sample", "decode.temperature", "1"},
    {"temperature_sample", "decode.topk", "1"},
};

/* Keys without which a run file is somebody else's model or run. */
static const char *const wanted[] = {
    "model.vocab_size",         "model.d_model",         "model.d_ff",
    "model.num_heads",          "model.head_dim",        "model.num_encoder_layers",
    "model.num_decoder_layers", "data.max_input_length", "data.max_target_length",
    "data.batch_size",          "train.steps",           "train.lr_factors"};

/* ---- the table ---- */

static int is_bound_in(const struct syi_gin_conversion *c, const char *scope, const char *last)
{
    for (size_t i = 0; i < c->gin->n_bindings; i++) {
        struct syi_gin_name name = syi_gin_take_apart(syi_gin_name_of(c, &c->gin->bindings[i]));
        if (!strcmp(name.scope, scope) && !strcmp(name.last, last)) return 1;
    }
    return 0;
}

/* Without a scope a binding is of training too, but for what the scope "train" binds itself, before it or after: gin goes
 * by the scope, not by the order. */
static int is_in_scope(const struct syi_gin_conversion *c, const struct syi_gin_name *name, const char *scope)
{
    if (!*scope || !strcmp(scope, name->scope)) return 1;
    return !*name->scope && !strcmp(scope, "train") && !is_bound_in(c, scope, name->last);
}

static const struct gin_key *find_row(const struct syi_gin_conversion *c, const struct syi_gin_name *name)
{
    for (size_t i = 0; i < SYI_COUNT(table); i++) {
        if (!is_in_scope(c, name, table[i].scope)) continue;
        if (syi_pattern_match(table[i].name, name->last)) return &table[i];
    }
    return NULL;
}

static const char *nearest_row(const struct syi_gin_name *name)
{
    const char *best = table[0].name;
    for (size_t i = 1; i < SYI_COUNT(table); i++)
        if (!strchr(table[i].name, '*') &&
            syi_edit_distance(name->last, table[i].name) < syi_edit_distance(name->last, best))
            best = table[i].name;
    return best;
}

/* ---- decoding ---- */

static int is_decoder(const char *name)
{
    return !strcmp(name, "beam_search") || !strcmp(name, "temperature_sample");
}

static const char *find_decoder(const struct syi_gin_conversion *c)
{
    const struct syi_gin_binding *binding = syi_gin_find_binding(c, "*Model", "decode_fn");
    uint32_t value = binding ? syi_gin_resolve(c->gin, binding->value) : SYI_GIN_NONE;
    return !binding || syi_gin_is_word(c, value, "None") ? "beam_search" : syi_gin_referred_to(c, value);
}

/* T5X returns the best of num_decodes beams or draws, or all of them if asked to. After all bindings. */
static void take_decodes(struct syi_gin_conversion *c)
{
    static const char class[] = "predict_batch_with_aux";
    const struct syi_gin_binding *number = syi_gin_find_binding(c, class, "num_decodes");
    const struct syi_gin_binding *all = syi_gin_find_binding(c, class, "return_all_decodes");
    uint32_t value = number ? syi_gin_resolve(c->gin, number->value) : SYI_GIN_NONE;
    const char *text = value == SYI_GIN_NONE ? NULL : syi_gin_plain_text(c, value);
    int beams = !strcmp(c->decoder, "beam_search"), draws = c->config.decode.temperature > 0;
    int outputs = all && syi_gin_is_word(c, syi_gin_resolve(c->gin, all->value), "True");
    if (value == SYI_GIN_NONE) return;
    if (beams) syi_gin_set_value(c, number, "decode.beams", NULL, value);
    if (outputs && (beams || draws))
        syi_gin_set_value(c, number, "decode.num_decodes", NULL, value);
    else if (!beams && text && strcmp(text, "1"))
        syi_gin_note_binding(
            c, number,
            !is_decoder(c->decoder) ? "what decode_fn does with them is not known"
            : outputs               ? "with temperature 0 all of them are the same"
                      : "the best alone of so many is had of beams only: decode.num_decodes writes "
                        "all draws, the best first");
}

/* ---- the MLP after the experts ---- */

static int has_extra_mlp(const struct syi_gin_conversion *c, const struct syi_gin_binding *binding)
{
    return binding && *syi_gin_referred_to(c, syi_gin_resolve(c->gin, binding->value));
}

/* Here both stacks have it, or none; what a stack without experts says counts for nothing. After all bindings. */
static void take_extra_mlp(struct syi_gin_conversion *c)
{
    const struct syi_gin_binding *encoder = syi_gin_find_binding(c, "SparseEncoderLayer", "extra_mlp");
    const struct syi_gin_binding *decoder = syi_gin_find_binding(c, "SparseDecoderLayer", "extra_mlp");
    int in_encoder = has_extra_mlp(c, encoder), in_decoder = has_extra_mlp(c, decoder);
    const struct syi_gin_binding *from = in_encoder ? encoder : decoder;
    if (!in_encoder && !in_decoder) return;
    if ((in_encoder || !c->config.moe.num_encoder_sparse_layers) &&
        (in_decoder || !c->config.moe.num_decoder_sparse_layers))
        syi_gin_set(c, from, "moe.extra_mlp", "true");
    else
        syi_gin_note_binding(c, from, "moe.extra_mlp is for the experts of both stacks");
}

/* ---- bindings ---- */

static void note_unknown(struct syi_gin_conversion *c, const struct syi_gin_binding *binding)
{
    char why[SYI_GIN_TEXT] = "no key for it is known";
    struct syi_gin_name name = syi_gin_take_apart(syi_gin_name_of(c, binding));
    const char *nearest = nearest_row(&name);
    if (syi_is_near(name.last, nearest))
        snprintf(why, sizeof why, "no key for it is known; the nearest that has one: %s", nearest);
    syi_gin_note_binding(c, binding, why);
}

static void convert_row(struct syi_gin_conversion *c, const struct syi_gin_binding *binding,
                        const struct gin_key *row, uint32_t value)
{
    const char *text = syi_gin_plain_text(c, value);
    switch (row->how) {
    case VALUE: syi_gin_set_value(c, binding, row->key, row->extra, value); return;
    case CHOICE: syi_gin_set_choice(c, binding, row->key, row->extra, value); return;
    case ACTIVATIONS: syi_gin_set_activations(c, binding, row->key, value); return;
    case LENGTHS: syi_gin_set_lengths(c, binding, value); return;
    case FACTOR: syi_gin_set_factor(c, binding, row->key, row->extra, value); return;
    case TASK:
        c->task.length = 0;
        if (text) syi_text_puts(&c->task, text);
        syi_gin_note_binding(
            c, binding,
            "tasks of seqio are Python: write its examples into files, see [task.NAME] and doc/data.md");
        return;
    case DECODER:
        if (!syi_gin_is_nothing(c, value) && !is_decoder(syi_gin_referred_to(c, value)))
            syi_gin_note_binding(c, binding, row->extra);
        return;
    case LATER: return; /* take_decodes, take_extra_mlp */
    case WIRING: return;
    case PARTS:
        if (!syi_gin_is_nothing(c, value) && !*syi_gin_referred_to(c, value)) note_unknown(c, binding);
        return;
    case OFF:
        if (syi_gin_is_word(c, value, "False")) syi_gin_note_binding(c, binding, row->extra);
        return;
    case NONE:
        if (!syi_gin_is_nothing(c, value)) syi_gin_note_binding(c, binding, row->extra);
        return;
    }
}

/* Whether a binding before this one, which is no macro and has another name, gave the key its value. */
static const struct syi_gin_binding *find_other(struct syi_gin_conversion *c,
                                                const struct syi_gin_binding *binding, const char *key)
{
    const struct syi_gin_set_key *set = key ? syi_gin_find_set(c, key) : NULL;
    if (!set || !set->from) return NULL;
    struct syi_gin_name old = syi_gin_take_apart(syi_gin_name_of(c, set->from)),
                        new = syi_gin_take_apart(syi_gin_name_of(c, binding));
    return *old.class && (strcmp(old.last, new.last) || strcmp(old.scope, new.scope)) ? set->from : NULL;
}

/* What T5X has in several places may be one key here, as the rate of dropout is: the last binding holds. */
static void convert_known(struct syi_gin_conversion *c, const struct syi_gin_binding *binding,
                          const struct gin_key *row, uint32_t value)
{
    const struct syi_gin_binding *other = find_other(c, binding, row->key);
    struct syi_text old = {0}, new = {0};
    char why[SYI_GIN_TEXT];
    int status = other ? syi_config_get_text(&c->config, row->key, &old, c->err) : SY_OK;
    convert_row(c, binding, row, value);
    if (other && !status) status = syi_config_get_text(&c->config, row->key, &new, c->err);
    if (old.data && new.data && strcmp(old.data, new.data)) {
        snprintf(why, sizeof why, "%s is one for all and has the value of %.200s", row->key,
                 syi_gin_name_of(c, binding));
        syi_gin_note_binding(c, other, why);
    }
    if (status || old.status || new.status) c->notes.status = SY_ENOMEM;
    syi_text_free(&old);
    syi_text_free(&new);
}

static int is_referred_to(const struct syi_gin_conversion *c, const char *name)
{
    for (size_t i = 0; i < c->gin->n_nodes; i++)
        if (c->gin->nodes[i].kind == SYI_GIN_MACRO && !strcmp(syi_gin_text_of(c, (uint32_t)i), name))
            return 1;
    return 0;
}

/* Why a row does not hold: it is of another optimizer or function of decoding than those in force. NULL: it does. */
static const char *why_not(const struct syi_gin_conversion *c, const struct gin_key *row,
                           const struct syi_gin_name *name)
{
    static const char section[] = "optimizer.";
    if (row->key && !strncmp(row->key, section, sizeof section - 1) &&
        !syi_optimizer_takes(c->config.optimizer.part[0].name, row->key + sizeof section - 1))
        return "the optimizer of the run is another";
    if (is_decoder(name->class) && strcmp(name->class, c->decoder))
        return "decode_fn is another; it is beam_search where none is bound";
    return NULL;
}

static void convert_binding(struct syi_gin_conversion *c, const struct syi_gin_binding *binding,
                            const struct gin_key *row, const struct syi_gin_name *name)
{
    uint32_t value = syi_gin_follow(c->gin, binding->value);
    const char *why = row ? why_not(c, row, name) : NULL;
    const int unset = value == SYI_GIN_NONE || c->gin->nodes[value].kind == SYI_GIN_MACRO;
    if (row && (row->how == WIRING || (row->how == PARTS && unset))) return;
    if (unset) {
        /* a macro, %gin.REQUIRED, or a constant of Python, %enums.Layout.MIXED: a choice may take its name */
        const char *constant = value == SYI_GIN_NONE ? "" : syi_gin_text_of(c, value);
        if (row && row->how == CHOICE && strchr(constant, '.') && strcmp(constant, "gin.REQUIRED"))
            syi_gin_set_choice(c, binding, row->key, row->extra, value);
        else
            syi_gin_note_binding(c, binding, "the macro has no value in these files");
    } else if (row && !why) {
        convert_known(c, binding, row, value);
    } else if (row || !syi_gin_convert_optax(c, binding, name, value)) {
        if (!row)
            note_unknown(c, binding);
        else if (!syi_gin_is_word(c, value, "None")) /* which asks for nothing */
            syi_gin_note_binding(c, binding, why);
    }
}

enum pass { OPTIMIZERS, MACROS, BINDINGS };

static void convert_all(struct syi_gin_conversion *c, enum pass pass)
{
    for (size_t i = 0; i < c->gin->n_bindings; i++) {
        const struct syi_gin_binding *binding = &c->gin->bindings[i];
        struct syi_gin_name name = syi_gin_take_apart(syi_gin_name_of(c, binding));
        const struct gin_key *row = find_row(c, &name);
        int optimizer = row && row->key && !strcmp(row->key, "optimizer.name");
        int macro = !*name.class;
        if (optimizer != (pass == OPTIMIZERS) || (!optimizer && macro != (pass == MACROS))) continue;
        if (macro && is_referred_to(c, syi_gin_name_of(c, binding))) continue;
        convert_binding(c, binding, row, &name);
    }
}

/* ---- after all bindings ---- */

static int has_class(const struct syi_gin_conversion *c, const char *class)
{
    if (!*class) return 1;
    if (is_decoder(class)) return !strcmp(class, c->decoder);
    for (size_t i = 0; i < c->gin->n_bindings; i++)
        if (!strcmp(syi_gin_take_apart(syi_gin_name_of(c, &c->gin->bindings[i])).class, class)) return 1;
    for (size_t i = 0; i < c->gin->n_nodes; i++)
        if (!strcmp(syi_gin_referred_to(c, (uint32_t)i), class)) return 1;
    return 0;
}

static void set_defaults(struct syi_gin_conversion *c)
{
    for (size_t i = 0; i < SYI_COUNT(t5x_default); i++)
        if (has_class(c, t5x_default[i].class))
            syi_gin_set(c, NULL, t5x_default[i].key, t5x_default[i].value);
}

/* Writes "cosine_decay" of train.lr_factors as "cosine_decay(steps_per_cycle=N)" where a binding gave N. */
static void finish_factors(struct syi_gin_conversion *c)
{
    struct syi_gin_set_key *key = syi_gin_find_set(c, "train.lr_factors");
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
    if (out.data) syi_gin_set(c, key->from, "train.lr_factors", out.data);
    if (out.status) c->notes.status = out.status;
    syi_text_free(&out);
}

static void note_rest(struct syi_gin_conversion *c)
{
    struct syi_text missing = {0};
    struct sy_error why = {0};
    for (size_t i = 0; i < c->gin->n_missing; i++)
        syi_gin_note(c, c->gin->missing[i].file, c->gin->missing[i].line,
                     syi_gin_string(c->gin, c->gin->missing[i].text),
                     "the included file is not there: what it says is missing here");
    for (size_t i = 0; i < SYI_COUNT(wanted); i++)
        if (!syi_gin_find_set(c, wanted[i]))
            syi_text_printf(&missing, "%s%s", missing.length ? ", " : "", wanted[i]);
    if (missing.data) {
        syi_text_puts(&c->notes, "nothing says, so that switchyard's defaults hold: ");
        syi_gin_put_line(&c->notes, missing.data);
    }
    if (missing.status) c->notes.status = missing.status;
    syi_text_free(&missing);
    int status = syi_config_validate(&c->config, &why);
    if (status == SY_ENOMEM) c->notes.status = status;
    if (status) {
        syi_text_puts(&c->notes, "not a run file yet: ");
        syi_gin_put_line(&c->notes, why.text);
    }
}

/* ---- the run file ---- */

static void print_key(struct syi_gin_conversion *c, const struct syi_gin_set_key *set_key, const char *option,
                      struct syi_text *out)
{
    struct syi_text value = {0};
    int status = syi_config_get_text(&c->config, set_key->name, &value, c->err);
    syi_text_printf(out, "%s = %s  # ", option, status || !value.data ? "" : value.data);
    if (set_key->from)
        syi_gin_put_line(out, syi_gin_name_of(c, set_key->from));
    else
        syi_text_puts(out, "of T5X\n");
    if (status || value.status) out->status = SY_ENOMEM;
    syi_text_free(&value);
}

static void print_section(struct syi_gin_conversion *c, const struct syi_part_kind *kind,
                          struct syi_text *out)
{
    int keys = 0;
    for (size_t i = 0; i < kind->n_options; i++) {
        char name[SYI_KEY];
        syi_key_text(kind, "", &kind->options[i], name);
        const struct syi_gin_set_key *set_key = syi_gin_find_set(c, name);
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

static void print(struct syi_gin_conversion *c, const char *path, struct syi_text *out)
{
    size_t n;
    const struct syi_part_kind *kind = syi_config_kinds(&n);
    syi_text_puts(out, "# Made by `switchyard convert-gin` of ");
    syi_gin_put_line(out, path);
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
    struct syi_gin_conversion *c = syi_alloc(sizeof *c, err);
    if (!c) return SY_ENOMEM;
    c->gin = gin;
    c->err = err;
    int status = syi_config_defaults(&c->config, err);
    if (!status) {
        c->decoder = find_decoder(c);
        set_defaults(c);
        convert_all(c, OPTIMIZERS);
        syi_gin_take_chain(c);
        syi_gin_set_optax_defaults(c);
        convert_all(c, MACROS);
        convert_all(c, BINDINGS);
        syi_gin_take_rate(c);
        take_decodes(c);
        take_extra_mlp(c);
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
