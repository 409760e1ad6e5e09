/* SPDX-License-Identifier: Apache-2.0 */
/* Which model a T5X checkpoint holds. Widths, layers, experts and their places follow from names and shapes; heads from the
 * relative position bias. Activations, routing and rates stand in T5X's gin files alone: they come from the run file and
 * --set of the command, and a line in the log says which ones were taken. */
#include "config.h"

#include <inttypes.h>
#include <string.h>

#include "base/compat.h"
#include "import/t5x.h"

static const char *const side_name[] = {"encoder", "decoder"};

/* What the parameters show; tensors are borrowed. */
struct seen {
    struct {
        int64_t layers, sparse;            /* how many; how many of them have experts */
        uint8_t is_sparse[SYI_T5X_LAYERS]; /* [layers] */
    } side[2];
    const struct syi_import_tensor *embedding, *bias, *query, *dense,
        *expert; /* one of each kind; wi or wi_0 */
    int bias_per_layer, untied, extra_mlp, router_bias;
};

/* ---- what is there ---- */

static int is_wi(const char *rest, const char *prefix)
{
    size_t n = strlen(prefix);
    return !strncmp(rest, prefix, n) && (!strcmp(rest + n, "wi/kernel") || !strcmp(rest + n, "wi_0/kernel"));
}

static int is_gated(const struct syi_import_tensor *wi)
{
    return syi_pattern_match("*/wi_0/kernel", wi->name);
}

static void look_at_layer(struct seen *seen, const struct syi_t5x_name *name,
                          const struct syi_import_tensor *tensor)
{
    int side = name->stack[0] == 'd';
    const char *rest = name->rest;
    if (name->layer >= seen->side[side].layers) seen->side[side].layers = name->layer + 1;
    if (!strcmp(rest, "relpos_bias/rel_embedding")) seen->bias = tensor, seen->bias_per_layer = 1;
    if (!strcmp(rest, side ? "self_attention/query/kernel" : "attention/query/kernel")) seen->query = tensor;
    if (!strcmp(rest, "mlp/router/router_weights/w/bias")) seen->router_bias = 1;
    if (is_wi(rest, "extra_mlp/")) seen->extra_mlp = 1;
    if (is_wi(rest, "mlp/") || is_wi(rest, "extra_mlp/")) seen->dense = tensor;
    if (!is_wi(rest, "mlp/expert/")) return;
    seen->expert = tensor;
    seen->side[side].sparse += !seen->side[side].is_sparse[name->layer];
    seen->side[side].is_sparse[name->layer] = 1;
}

static int look(const struct syi_import *import, struct seen *seen, struct sy_error *err)
{
    for (size_t i = 0; i < import->n; i++) {
        const struct syi_import_tensor *tensor = &import->tensors[i];
        struct syi_t5x_name name = syi_t5x_name_parse(tensor->name + strlen("target/"));
        if (*name.stack && name.layer >= SYI_T5X_LAYERS)
            return syi_error(err, SY_EUNSUPPORTED, "%s: %s is of a layer over the most, %d", import->folder,
                             tensor->origin, SYI_T5X_LAYERS);
        if (*name.stack) look_at_layer(seen, &name, tensor);
        if (!strcmp(name.rest, "token_embedder/embedding")) seen->embedding = tensor;
        if (!strcmp(name.rest, "decoder/logits_dense/kernel")) seen->untied = 1;
        if (!seen->bias && syi_pattern_match("??coder/relpos_bias/rel_embedding", name.rest))
            seen->bias = tensor;
    }
    return SY_OK;
}

static int need(const struct syi_import *import, const struct syi_import_tensor *tensor, int rank,
                const char *what, struct sy_error *err)
{
    if (!tensor)
        return syi_error(
            err, SY_EUNSUPPORTED,
            "%s has no %s: it is not an encoder-decoder model as t5x/examples/t5 or flaxformer's T5 and MoE "
            "configurations make them",
            import->folder, what);
    if (tensor->rank == rank) return SY_OK;
    return syi_error(err, SY_EUNSUPPORTED, "%s: %s has %d axes in a layer, not %d", import->folder,
                     tensor->origin, tensor->rank, rank);
}

static int check(const struct syi_import *import, const struct seen *seen, struct sy_error *err)
{
    int status = need(import, seen->embedding, 2, "token_embedder/embedding", err);
    if (!status) status = need(import, seen->query, 2, "attention/query/kernel in a layer", err);
    if (!status) status = need(import, seen->bias, 2, "relpos_bias/rel_embedding (relative positions)", err);
    if (!status && !seen->expert) status = need(import, seen->dense, 2, "mlp/wi or mlp/wi_0", err);
    if (!status && seen->dense) status = need(import, seen->dense, 2, "mlp/wi", err);
    if (!status && seen->expert) status = need(import, seen->expert, 3, "mlp/expert/wi", err);
    for (int i = 0; i < 2 && !status; i++)
        if (!seen->side[i].layers)
            status = syi_error(err, SY_EUNSUPPORTED,
                               "%s has no layers of the %s: only encoder-decoder models are supported",
                               import->folder, side_name[i]);
    if (!status && seen->query->dims[1] % seen->bias->dims[0])
        status =
            syi_error(err, SY_EUNSUPPORTED,
                      "%s: %" PRId64 " heads (%s) do not divide the width %" PRId64 " of %s", import->folder,
                      seen->bias->dims[0], seen->bias->origin, seen->query->dims[1], seen->query->origin);
    return status;
}

/* ---- keys ---- */

int syi_t5x_set(struct syi_import *import, const char *key, const char *value, struct sy_error *err)
{
    struct sy_error why = {0};
    char *assignment = syi_format("%s=%s", key, value);
    int status = assignment ? syi_config_set(&import->config, assignment, &why) : SY_ENOMEM;
    syi_free(assignment);
    return status ? syi_error(err, status == SY_EINVAL ? SY_EUNSUPPORTED : status, "%s: %s", import->folder,
                              *why.text ? why.text : "out of memory")
                  : SY_OK;
}

static int set_number(struct syi_import *import, const char *key, int64_t value, struct sy_error *err)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    return syi_t5x_set(import, key, text, err);
}

static int set_widths(struct syi_import *import, const struct seen *seen, struct sy_error *err)
{
    const struct syi_import_tensor *dense = seen->dense ? seen->dense : seen->expert;
    const struct {
        const char *key;
        int64_t value;
    } rows[] = {{"model.vocab_size", seen->embedding->dims[0]},
                {"model.d_model", seen->embedding->dims[1]},
                {"model.num_heads", seen->bias->dims[0]},
                {"model.head_dim", seen->query->dims[1] / seen->bias->dims[0]},
                {"model.relpos_num_buckets", seen->bias->dims[1]},
                {"model.num_encoder_layers", seen->side[0].layers},
                {"model.num_decoder_layers", seen->side[1].layers},
                {"model.d_ff", dense->dims[dense->rank - 1]},
                {"moe.num_experts", seen->expert ? seen->expert->dims[0] : 0}};
    int status = SY_OK;
    for (size_t i = 0; i < SYI_COUNT(rows) && !status; i++)
        status = set_number(import, rows[i].key, rows[i].value, err);
    if (!status)
        status = syi_t5x_set(import, "model.logits_via_embedding", seen->untied ? "false" : "true", err);
    if (!status && seen->bias_per_layer) status = syi_t5x_set(import, "model.relpos_per_layer", "true", err);
    return status;
}

static int set_side(struct syi_import *import, const char *key, int side, const char *value,
                    struct sy_error *err)
{
    char name[64];
    snprintf(name, sizeof name, key, side_name[side]);
    return syi_t5x_set(import, name, value, err);
}

static int set_layout(struct syi_import *import, int side, int64_t sparse, const char *layout,
                      struct sy_error *err)
{
    char number[32];
    snprintf(number, sizeof number, "%" PRId64, sparse);
    int status = set_side(import, "moe.%s_sparse_layers", side, "[]", err);
    if (!status) status = set_side(import, "moe.num_%s_sparse_layers", side, number, err);
    return status ? status : set_side(import, "moe.%s_sparse_layout", side, layout, err);
}

static int list_sparse_layers(struct syi_import *import, const struct seen *seen, int side,
                              struct sy_error *err)
{
    static const int defaults[] = {1, 0}; /* what num_SIDE_sparse_layers must be beside a list */
    struct syi_text list = {0};
    for (int i = 0; i < seen->side[side].layers; i++)
        if (seen->side[side].is_sparse[i]) syi_text_printf(&list, "%s%d", list.length ? ", " : "[", i);
    syi_text_puts(&list, "]");
    int status = syi_text_status(&list, err);
    if (!status) status = set_layout(import, side, defaults[side], "MIXED", err);
    if (!status) status = set_side(import, "moe.%s_sparse_layers", side, list.data, err);
    syi_text_free(&list);
    return status;
}

/* A layout that has just these layers, or their list. */
static int set_sparse_layers(struct syi_import *import, const struct seen *seen, int side,
                             struct sy_error *err)
{
    static const char *const layout[] = {"MIXED", "TOP", "BOTTOM", "MIDDLE"};
    int64_t layers = seen->side[side].layers, sparse = seen->side[side].sparse;
    for (size_t which = 0; which < SYI_COUNT(layout); which++) {
        int same = which || !sparse || layers % sparse == 0; /* MIXED is for equal distances alone */
        if (!same) continue;
        int status = set_layout(import, side, sparse, layout[which], err);
        if (status) return status;
        for (int i = 0; i < layers && same; i++)
            same = syi_is_sparse_layer(&import->config, side, i) == seen->side[side].is_sparse[i];
        if (same) return SY_OK;
    }
    return list_sparse_layers(import, seen, side, err);
}

static int set_experts(struct syi_import *import, const struct seen *seen, struct sy_error *err)
{
    int status = set_number(import, "moe.expert_mlp_dim", seen->expert->dims[2], err);
    for (int side = 0; side < 2 && !status; side++) status = set_sparse_layers(import, seen, side, err);
    if (!status)
        status = syi_t5x_set(import, "moe.router_use_bias", seen->router_bias ? "true" : "false", err);
    if (!status) status = syi_t5x_set(import, "moe.extra_mlp", seen->extra_mlp ? "true" : "false", err);
    return status;
}

/* Names show whether an MLP is gated; which activation it has, only the gin file: ours is kept where it fits. */
static int set_activations(struct syi_import *import, const struct seen *seen, struct sy_error *err)
{
    int dense = is_gated(seen->dense ? seen->dense : seen->expert), status = SY_OK;
    if ((import->config.model.mlp_activations <= SYI_MLP_SILU_LINEAR) != dense)
        status = syi_t5x_set(import, "model.mlp_activations", dense ? "gelu,linear" : "relu", err);
    if (status || !seen->expert) return status;
    int expert = is_gated(seen->expert), has = import->config.moe.expert_activations;
    int fits = has == SYI_EXPERT_MLP_MODEL ? dense == expert : (has <= SYI_EXPERT_MLP_SILU_LINEAR) == expert;
    const char *value = dense == expert ? "model" : expert ? "gelu,linear" : "relu";
    return fits ? SY_OK : syi_t5x_set(import, "moe.expert_activations", value, err);
}

/* ---- the log ---- */

/* What follows from run.compat is written as what it is there; for a gin file, which has no capacity factor of 0 for places for
 * all tokens, the number of experts in its place. */
static int put_value(const struct syi_config *config, const char *key, int gin, struct syi_text *text,
                     struct sy_error *err)
{
    char number[SYI_NUMBER_BYTES];
    int training = !strcmp(key, "moe.train_capacity_factor");
    if (!strcmp(key, "moe.ignore_padding_tokens")) {
        syi_text_puts(text, syi_compat(config, config->moe.ignore_padding_tokens) ? "false" : "true");
        return SY_OK;
    }
    if (!training && strcmp(key, "moe.eval_capacity_factor"))
        return syi_config_get_text(config, key, text, err);
    double factor = syi_capacity_factor(config, training);
    syi_format_double(number, gin && factor == 0 ? (double)config->moe.num_experts : factor);
    syi_text_puts(text, number);
    return SY_OK;
}

int syi_t5x_unsaid(const struct syi_config *config, int gin, struct syi_text *text, struct sy_error *err)
{
    static const char *const keys[] = {"vocabulary.kind",
                                       "model.mlp_activations",
                                       "model.relpos_max_distance",
                                       "model.layer_norm_epsilon",
                                       "model.dropout_rate",
                                       "moe.num_selected_experts",
                                       "moe.router_type",
                                       "moe.decoder_router_type",
                                       "moe.encoder_batch_prioritized_routing",
                                       "moe.decoder_batch_prioritized_routing",
                                       "moe.jitter_noise",
                                       "moe.ignore_padding_tokens",
                                       "moe.expert_activations",
                                       "moe.train_capacity_factor",
                                       "moe.eval_capacity_factor",
                                       "moe.min_expert_capacity"};
    int status = SY_OK;
    for (size_t i = 0; i < SYI_COUNT(keys) && !status; i++) {
        if (!strncmp(keys[i], "moe.", 4) && !config->moe.num_experts) break;
        syi_text_printf(text, "%s%s = ", i ? ", " : "", keys[i]);
        status = put_value(config, keys[i], gin, text, err);
    }
    return status ? status : syi_text_status(text, err);
}

static int log_assumed(const struct syi_import *import, struct sy_error *err)
{
    struct syi_text line = {0};
    int status = syi_t5x_unsaid(&import->config, 0, &line, err);
    if (!status)
        syi_log(SY_LOG_INFO, "a T5X checkpoint does not say these, give others with --set: %s", line.data);
    syi_text_free(&line);
    return status;
}

int syi_t5x_set_model(struct syi_import *import, struct sy_error *err)
{
    struct seen *seen = syi_alloc(sizeof *seen, err);
    if (!seen) return SY_ENOMEM;
    int status = look(import, seen, err);
    if (!status) status = check(import, seen, err);
    if (!status) status = syi_t5x_set(import, "run.compat", "t5x", err);
    if (!status) status = set_widths(import, seen, err);
    if (!status && seen->expert) status = set_experts(import, seen, err);
    if (!status) status = set_activations(import, seen, err);
    if (!status) status = log_assumed(import, err);
    syi_free(seen);
    return status;
}
