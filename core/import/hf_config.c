/* SPDX-License-Identifier: Apache-2.0 */
/* config.json as keys of the run file. Whether the head is tied and which layers have experts the tensors say, for the file is
 * known to be wrong about it. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "import/hf.h"

/* ---- one config.json being read ---- */

struct reading {
    struct syi_import *import;
    struct syi_hf *hf;
    struct syi_json json;
    const char *what;        /* "config.json" with its folder */
    int version;             /* major one of transformers that wrote it; 0: unknown */
    int64_t layers[2];       /* of encoder and decoder */
    int tie, has_tie, scale; /* flags of the file; tie_word_embeddings true where it is absent */
    struct sy_error *err;
    int status; /* of the first that failed */
};

static void set(struct reading *r, const char *key, const char *value)
{
    if (!r->status) r->status = syi_hf_set(&r->import->config, r->what, r->err, "%s=%s", key, value);
}

static void set_integer(struct reading *r, const char *key, int64_t value)
{
    if (!r->status)
        r->status = syi_hf_set(&r->import->config, r->what, r->err, "%s=%lld", key, (long long)value);
}

static void set_real(struct reading *r, const char *key, double value)
{
    char text[SYI_NUMBER_BYTES];
    syi_format_double(text, value);
    set(r, key, text);
}

static int64_t integer(struct reading *r, const char *key, int64_t value)
{
    if (!r->status) r->status = syi_hf_integer(&r->json, 0, r->what, key, &value, r->err);
    return value;
}

static double real(struct reading *r, const char *key, double value)
{
    if (!r->status) r->status = syi_hf_real(&r->json, 0, r->what, key, &value, r->err);
    return value;
}

static int flag(struct reading *r, const char *key, int value)
{
    if (!r->status) r->status = syi_hf_flag(&r->json, 0, r->what, key, &value, r->err);
    return value;
}

static const char *text(struct reading *r, const char *key, const char *value)
{
    if (!r->status) r->status = syi_hf_text(&r->json, 0, r->what, key, &value, r->err);
    return value;
}

static void refuse(struct reading *r, int code, const char *format, ...) SYI_PRINTF(3, 4);
static void refuse(struct reading *r, int code, const char *format, ...)
{
    char why[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    if (!r->status) r->status = syi_error(r->err, code, "%s: %s", r->what, why);
}

/* ---- what kind of model ---- */

static const char *const families[] = {[SYI_HF_T5] = "t5",
                                       [SYI_HF_MT5] = "mt5",
                                       [SYI_HF_UMT5] = "umt5",
                                       [SYI_HF_SWITCH] = "switch_transformers"};

static void read_family(struct reading *r)
{
    const char *type = text(r, "model_type", NULL);
    size_t nearest = 0;
    if (r->status) return;
    if (!type) {
        refuse(r, SY_EFORMAT, "it has no \"model_type\"");
        return;
    }
    for (size_t i = 0; i < SYI_COUNT(families); i++) {
        if (!strcmp(type, families[i])) {
            r->hf->family = (enum syi_hf_family)i;
            return;
        }
        if (syi_edit_distance(type, families[i]) < syi_edit_distance(type, families[nearest])) nearest = i;
    }
    refuse(
        r, SY_EUNSUPPORTED,
        "model_type \"%.60s\" is another architecture: t5, mt5, umt5 and switch_transformers are read, the nearest is "
        "%s",
        type, families[nearest]);
}

static void read_version(struct reading *r)
{
    const char *version = text(r, "transformers_version", "0");
    r->version = r->status ? 0 : atoi(version);
}

/* ---- dimensions ---- */

static void set_dimension(struct reading *r, const char *key, const char *theirs)
{
    int64_t value = integer(r, theirs, -1);
    if (!r->status && value == -1) refuse(r, SY_EFORMAT, "it has no \"%s\"", theirs);
    set_integer(r, key, value);
}

static void set_activations(struct reading *r)
{
    static const struct {
        const char *theirs, *ours;
    } rows[] = {{"relu", "relu"},
                {"gelu_new", "gelu"},
                {"gated-relu", "relu,linear"},
                {"gated-gelu", "gelu,linear"},
                {"gated-gelu_new", "gelu,linear"},
                {"gated-silu", "silu,linear"},
                {"gated-swish", "silu,linear"}};
    int gated = r->hf->family == SYI_HF_MT5 || r->hf->family == SYI_HF_UMT5;
    const char *name = text(r, "feed_forward_proj", gated ? "gated-gelu" : "relu");
    if (r->hf->family == SYI_HF_SWITCH) name = text(r, "dense_act_fn", name);
    for (size_t i = 0; !r->status && i < SYI_COUNT(rows); i++)
        if (!strcmp(rows[i].theirs, name)) {
            set(r, "model.mlp_activations", rows[i].ours);
            return;
        }
    refuse(
        r, SY_EUNSUPPORTED,
        "feed_forward_proj \"%.60s\" is not supported: relu, gelu_new, gated-relu, gated-gelu and gated-silu are "
        "(plain \"gelu\" is the one with erf)",
        name);
}

/* A model of more layers than there are tensors is not even recorded. */
static void check_layers(struct reading *r)
{
    for (int i = 0; i < 2 && !r->status; i++)
        if (r->layers[i] < 1 || (uint64_t)r->layers[i] > r->hf->stored.n_tensors)
            refuse(r, SY_EFORMAT, "%lld layers, but %zu tensors", (long long)r->layers[i],
                   r->hf->stored.n_tensors);
}

static void read_dimensions(struct reading *r)
{
    set_dimension(r, "model.vocab_size", "vocab_size");
    set_dimension(r, "model.d_model", "d_model");
    set_dimension(r, "model.d_ff", "d_ff");
    set_dimension(r, "model.head_dim", "d_kv");
    set_dimension(r, "model.num_heads", "num_heads");
    set_dimension(r, "model.num_encoder_layers", "num_layers");
    r->layers[0] = integer(r, "num_layers", 0);
    r->layers[1] = integer(r, "num_decoder_layers", r->layers[0]);
    set_integer(r, "model.num_decoder_layers", r->layers[1]);
    check_layers(r);
    set_integer(r, "model.relpos_num_buckets", integer(r, "relative_attention_num_buckets", 32));
    set_integer(r, "model.relpos_max_distance", integer(r, "relative_attention_max_distance", 128));
    set_real(r, "model.layer_norm_epsilon", real(r, "layer_norm_epsilon", 1e-6));
    set_real(r, "model.dropout_rate", real(r, "dropout_rate", 0.1));
    set_activations(r);
    if (r->hf->family == SYI_HF_UMT5) set(r, "model.relpos_per_layer", "true");
}

/* ---- the head ---- */

/* Tied: there is none of its own, or it has the embedding's very numbers. */
static void find_head(struct reading *r)
{
    const struct syi_stored *stored = &r->hf->stored;
    const struct syi_stored_tensor *head = syi_stored_find(stored, "lm_head.weight");
    const struct syi_stored_tensor *shared = syi_stored_find(stored, "shared.weight");
    r->hf->tied = !head;
    if (head && shared && !r->status)
        r->status = syi_stored_compare(stored, head, shared, &r->hf->tied, r->err);
    set(r, "model.logits_via_embedding", r->hf->tied ? "true" : "false");
}

/* Whether transformers multiplies by d_model^-0.5 before the head: each family and version by a rule of its own. */
static int is_scaled(struct reading *r)
{
    int tie = flag(r, "tie_word_embeddings", 1);
    switch (r->hf->family) {
    case SYI_HF_T5: return flag(r, "scale_decoder_outputs", tie);
    case SYI_HF_MT5: return r->version < 5 && tie && r->hf->tied;
    case SYI_HF_UMT5: return flag(r, "scale_decoder_outputs", r->version >= 5 || tie);
    default: return r->hf->tied;
    }
}

static void read_head(struct reading *r)
{
    find_head(r);
    int scaled = is_scaled(r);
    if (scaled != r->hf->tied) set(r, "model.scale_decoder_outputs", scaled ? "true" : "false");
}

/* ---- experts ---- */

static int has_experts(const struct reading *r, int decoder, int64_t layer)
{
    struct syi_hf_name name;
    char ours[100];
    snprintf(ours, sizeof ours, "%s/layers_%lld/mlp/router/router_weights/w/kernel",
             decoder ? "decoder" : "encoder", (long long)layer);
    return syi_hf_name(ours, r->hf->family, &name) && syi_stored_find(&r->hf->stored, name.text);
}

/* Whether the layers that have experts are those that the configuration has now. */
static int is_like(const struct reading *r, int decoder)
{
    int64_t i = 0;
    while (i < r->layers[decoder] &&
           has_experts(r, decoder, i) == !!syi_is_sparse_layer(&r->import->config, decoder, (int)i))
        i++;
    return i == r->layers[decoder];
}

static void list_sparse_layers(struct reading *r, int decoder)
{
    char list[SYI_CONFIG_INTS * 24] = "[";
    size_t used = 1;
    int n = 0;
    for (int64_t i = 0; i < r->layers[decoder] && !r->status; i++) {
        if (!has_experts(r, decoder, i)) continue;
        if (n == SYI_CONFIG_INTS)
            refuse(r, SY_EUNSUPPORTED, "more than %d layers with experts that are not evenly spread", n);
        else
            used +=
                (size_t)snprintf(list + used, sizeof list - used, "%s%lld", n++ ? ", " : "", (long long)i);
    }
    snprintf(list + used, sizeof list - used, "]");
    set_integer(r, decoder ? "moe.num_decoder_sparse_layers" : "moe.num_encoder_sparse_layers", !decoder);
    set(r, decoder ? "moe.decoder_sparse_layers" : "moe.encoder_sparse_layers", list);
}

/* The layers of a stack that have experts: by their number where they are spread as MIXED has them, else by a list. */
static void set_sparse_layers(struct reading *r, int decoder)
{
    int64_t layers = r->layers[decoder], n = 0;
    for (int64_t i = 0; i < layers; i++) n += has_experts(r, decoder, i);
    set_integer(r, decoder ? "moe.num_decoder_sparse_layers" : "moe.num_encoder_sparse_layers", n);
    if (!r->status && n && (layers % n || !is_like(r, decoder))) list_sparse_layers(r, decoder);
}

static void read_experts(struct reading *r)
{
    if (r->hf->family != SYI_HF_SWITCH) return;
    set_dimension(r, "moe.num_experts", "num_experts");
    for (int decoder = 0; decoder < 2 && !r->status; decoder++) set_sparse_layers(r, decoder);
    set_integer(r, "moe.expert_capacity", integer(r, "expert_capacity", 64));
    set(r, "moe.router_use_bias", flag(r, "router_bias", 0) ? "true" : "false");
    set_real(r, "moe.jitter_noise", real(r, "router_jitter_noise", 0.01));
    set_real(r, "moe.aux_loss_factor", real(r, "router_aux_loss_coef", 0.001));
    set_real(r, "moe.router_z_loss_factor", real(r, "router_z_loss_coef", 0.001));
    set(r, "moe.scale_expert_gradients", "false");
}

/* ---- ids, lengths ---- */

static void read_ids(struct reading *r)
{
    int64_t start = 0;
    if (!r->status) r->status = syi_hf_ends(&r->json, r->what, &start, r->err);
    set_integer(r, "model.decoder_start_token_id", start);
}

static int64_t longest_wanted(const struct syi_config *c)
{
    int64_t input = c->data.max_input_length, target = c->data.max_target_length;
    return input > target ? input : target;
}

/* What training sees is not written down there; these are the lengths that T5 was trained with, or longer ones that --set has. */
static void set_lengths(struct reading *r)
{
    enum { TARGET = 128, SHORTEST = 32 };
    char list[SYI_CONFIG_INTS * 24] = "[";
    int64_t most = integer(r, "n_positions", 512), wanted = longest_wanted(&r->import->config);
    size_t used = 1;
    if (most < TARGET || most > 65536) most = 512; /* nothing depends on it but memory */
    if (most < wanted) most = wanted;
    for (int64_t i = SHORTEST; i < most; i *= 2)
        used += (size_t)snprintf(list + used, sizeof list - used, "%lld, ", (long long)i);
    snprintf(list + used, sizeof list - used, "%lld]", (long long)most);
    set_integer(r, "data.max_input_length", most);
    set_integer(r, "data.max_target_length", TARGET);
    set(r, "data.length_buckets", list);
    set_integer(r, "decode.batch_size", 8);
    set_integer(r, "loss.z_loss", 0);
}

/* ---- all ---- */

static void read_all(struct reading *r)
{
    read_family(r);
    read_version(r);
    read_dimensions(r);
    read_head(r);
    read_experts(r);
    read_ids(r);
    set_lengths(r);
    if (!r->status) r->status = syi_hf_generation(r->import, &r->json, r->what, r->err);
}

int syi_hf_config(struct syi_import *import, struct sy_error *err)
{
    struct reading r = {.import = import, .hf = import->state, .err = err};
    char *what = syi_format("%s/config.json", import->folder);
    int there;
    if (!what) return syi_error(err, SY_ENOMEM, "out of memory");
    r.what = what;
    r.status = syi_hf_json(import->folder, "config.json", &r.json, &there, err);
    if (!r.status && !there) r.status = syi_error(err, SY_ENOENT, "%s: there is no such file", what);
    if (!r.status) read_all(&r);
    syi_json_free(&r.json);
    syi_free(what);
    return r.status;
}
