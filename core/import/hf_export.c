/* SPDX-License-Identifier: Apache-2.0 */
/* The form hf: config.json, generation_config.json, model.safetensors and the tokenizer's files, as transformers 4 and 5
 * read them. What a family there cannot hold is refused by the key of the run file that asks for it. */
#include "config.h"

#include <string.h>

#include "base/compat.h"
#include "data/vocabulary.h"
#include "import/export.h"
#include "import/hf.h"

/* ---- what the families hold ---- */

static int refuse(const struct syi_config *c, const char *key, const char *why, struct sy_error *err)
{
    return syi_export_refuse(c, "transformers", key, why, err);
}

/* "relu" and the like as feed_forward_proj. */
static const char *activation_of(int mlp)
{
    switch (mlp) {
    case SYI_MLP_RELU: return "relu";
    case SYI_MLP_GELU: return "gelu_new";
    case SYI_MLP_RELU_LINEAR: return "gated-relu";
    case SYI_MLP_SILU_LINEAR: return "gated-silu";
    default: return "gated-gelu";
    }
}

/* Switch models: their rule for the layers with experts, of `sparse` layers as config.json has them. */
static int is_sparse(int64_t layer, int64_t layers, int64_t sparse)
{
    int64_t step = sparse ? layers / sparse : layers;
    return step == 1 || layer % step == 1;
}

/* The number of sparse layers by which their rule gives ours; -1: there is none. */
static int64_t sparse_layers(const struct syi_config *c, int decoder)
{
    int64_t layers = decoder ? c->model.num_decoder_layers : c->model.num_encoder_layers;
    for (int64_t n = 1; n <= layers; n++) {
        int64_t i = 0;
        while (i < layers && is_sparse(i, layers, n) == !!syi_is_sparse_layer(c, decoder, (int)i)) i++;
        if (i == layers) return n;
    }
    return -1;
}

/* Places of an expert in a row: a number there. Where no token is dropped here, more than any row has. */
static int64_t expert_capacity(const struct syi_config *c)
{
    enum { ALL = 1 << 20 };
    if (c->moe.expert_capacity) return c->moe.expert_capacity;
    return syi_capacity_factor(c, 0) == 0 ? ALL : -1;
}

/* The key that decides which layers of a stack have experts. */
static const char *layers_key(const struct syi_config *c, int decoder)
{
    if (decoder)
        return c->moe.decoder_sparse_layers.n ? "moe.decoder_sparse_layers" : "moe.num_decoder_sparse_layers";
    return c->moe.encoder_sparse_layers.n ? "moe.encoder_sparse_layers" : "moe.num_encoder_sparse_layers";
}

static int check_stack(const struct syi_config *c, int decoder, struct sy_error *err)
{
    int own_router = decoder && c->moe.decoder_router_type != SYI_DECODER_ROUTER_SAME;
    if (syi_router_type(c, decoder) == SYI_ROUTER_EXPERTS_CHOOSE_MASKED)
        return refuse(c, own_router ? "moe.decoder_router_type" : "moe.router_type", "tokens choose there",
                      err);
    if (sparse_layers(c, decoder) < 0)
        return refuse(c, layers_key(c, decoder),
                      "every layer has experts there or, of each n, the second, in both stacks", err);
    return SY_OK;
}

static int check_switch(const struct syi_config *c, struct sy_error *err)
{
    static const struct syi_export_limit limits[] = {
        {"model.mlp_activations", "\"relu\"", "Switch Transformers has relu MLPs"},
        {"moe.num_selected_experts", "1", "a token goes to one expert there"},
        {"moe.normalize_top_k", "false", "what an expert gives is multiplied by its probability there"},
        {"moe.num_shared_experts", "0", "it has no shared experts"},
        {"moe.extra_mlp", "false", "it has no dense MLP after the experts"},
        {"moe.expert_bias", "false", "its experts have no bias"},
        {"moe.encoder_batch_prioritized_routing", "false", "places go to tokens in their order there"},
        {"moe.decoder_batch_prioritized_routing", "false", "places go to tokens in their order there"},
        {"model.relpos_per_layer", "false", "it has one position bias a stack"}};
    int status = syi_export_limits(c, "transformers", limits, SYI_COUNT(limits), err);
    for (int decoder = 0; decoder < 2 && !status; decoder++) status = check_stack(c, decoder, err);
    if (status) return status;
    if (c->moe.expert_mlp_dim && c->moe.expert_mlp_dim != c->model.d_ff)
        return refuse(c, "moe.expert_mlp_dim", "experts are as wide as dense MLPs there (model.d_ff)", err);
    if (c->moe.expert_activations != SYI_EXPERT_MLP_MODEL && c->moe.expert_activations != SYI_EXPERT_MLP_RELU)
        return refuse(c, "moe.expert_activations", "experts have relu there", err);
    if (expert_capacity(c) < 0)
        return refuse(
            c, "moe.eval_capacity_factor",
            "its experts have a number of places for any length: give --set moe.expert_capacity=N, or "
            "--set moe.eval_capacity_factor=0, which drops no token",
            err);
    return SY_OK;
}

static enum syi_hf_family family_of(const struct syi_config *c)
{
    return c->moe.num_experts ? SYI_HF_SWITCH : c->model.relpos_per_layer ? SYI_HF_UMT5 : SYI_HF_T5;
}

/* Switch scales where the head is tied; T5 and UMT5 have a key for it in version 5. */
static int check_head(const struct syi_config *c, enum syi_hf_family family, struct sy_error *err)
{
    if (c->model.logits_via_embedding == syi_export_is_scaled(c) || family != SYI_HF_SWITCH) return SY_OK;
    return refuse(c, "model.scale_decoder_outputs",
                  "the output is scaled there where the head is the embedding, and only there", err);
}

/* Where not all versions compute this model. */
static void warn_of_versions(const struct syi_config *c, enum syi_hf_family family)
{
    int scaled = syi_export_is_scaled(c);
    if (!c->model.logits_via_embedding && scaled)
        syi_log(SY_LOG_WARN,
                "transformers 5 computes this model, and transformers 4 another one: it does not scale the "
                "decoder's output before a head of its own (model.scale_decoder_outputs)");
    if (family == SYI_HF_UMT5 && !scaled)
        syi_log(
            SY_LOG_WARN,
            "transformers 4 and 5.24 compute this model, and the first versions of transformers 5 another one: they "
            "do not read scale_decoder_outputs of a UMT5, and scale the decoder's output "
            "(model.scale_decoder_outputs)");
}

static int check_config(const struct syi_config *c, enum syi_hf_family family, struct sy_error *err)
{
    int status = family == SYI_HF_SWITCH ? check_switch(c, err) : SY_OK;
    return status ? status : check_head(c, family, err);
}

/* ---- tensors ---- */

struct list {
    struct syi_export_tensor *tensor; /* [n] names owned */
    size_t n, capacity;
};

static int add(struct list *list, const char *name, const char *from, int64_t part, int64_t parts,
               int transposed, struct sy_error *err)
{
    int status = SYI_GROW(list->tensor, list->capacity, list->n + 1, err);
    char *copy = status ? NULL : syi_strdup(name, err);
    if (!copy) return SY_ENOMEM;
    list->tensor[list->n++] = (struct syi_export_tensor){copy, from, part, parts, transposed};
    return SY_OK;
}

static int add_param(struct list *list, const struct syi_safetensors_tensor *param, enum syi_hf_family family,
                     struct sy_error *err)
{
    struct syi_hf_name name;
    const char *slash = strchr(param->name, '/'); /* after "target" */
    int64_t parts = 0;
    int status = SY_OK;
    if (!slash || !syi_hf_name(slash + 1, family, &name))
        return syi_error(err, SY_EUNSUPPORTED, "%s has no place in transformers' models of this family",
                         param->name);
    if (name.experts) parts = param->dims[0];
    for (int64_t i = 0; i < (parts ? parts : 1) && !status; i++) {
        char text[SYI_HF_NAME];
        syi_hf_expert_name(&name, i, text);
        status = add(list, text, param->name, i, parts, name.transposed, err);
    }
    return status;
}

/* A tied head that is not scaled: version 4 knows it as a head of its own only. */
static int has_copy(const struct syi_config *c)
{
    return c->model.logits_via_embedding && !syi_export_is_scaled(c);
}

static int add_embedding(struct list *list, const char *name, struct sy_error *err)
{
    return add(list, name, "target/token_embedder/embedding", 0, 0, 0, err);
}

static int write_tensors(const struct syi_export *export, const char *to, enum syi_hf_family family,
                         struct sy_error *err)
{
    struct list list = {0};
    /* transformers 5 takes a Switch model's tables from shared.weight only where its head is tied to that, too */
    const int apart = family == SYI_HF_SWITCH && !export->config.model.logits_via_embedding;
    int status = SY_OK;
    for (size_t i = 0; i < export->params.n_tensors && !status; i++)
        status = add_param(&list, &export->params.tensors[i], family, err);
    if (!status && has_copy(&export->config)) status = add_embedding(&list, "lm_head.weight", err);
    if (!status && apart) status = add_embedding(&list, "encoder.embed_tokens.weight", err);
    if (!status && apart) status = add_embedding(&list, "decoder.embed_tokens.weight", err);
    if (!status) status = syi_export_tensors(export, to, list.tensor, list.n, err);
    for (size_t i = 0; i < list.n; i++) syi_free(list.tensor[i].name);
    syi_free(list.tensor);
    return status;
}

/* ---- config.json ---- */

/* Whole numbers with a point: transformers 5 refuses a folder that has 0 where a real number belongs. */
static void put_real(struct syi_json_writer *json, const char *key, double value)
{
    syi_json_put_key(json, key);
    size_t from = json->out->length;
    syi_json_put_double(json, value);
    if (json->out->data && !strpbrk(json->out->data + from, ".en")) syi_text_puts(json->out, ".0");
}

static void put_flag(struct syi_json_writer *json, const char *key, int value)
{
    syi_json_put_key(json, key);
    syi_json_put_bool(json, value);
}

static void put_switch(struct syi_json_writer *json, const struct syi_config *c)
{
    syi_json_put_key_integer(json, "num_experts", c->moe.num_experts);
    syi_json_put_key_integer(json, "expert_capacity", expert_capacity(c));
    for (int decoder = 0; decoder < 2; decoder++) {
        int64_t layers = decoder ? c->model.num_decoder_layers : c->model.num_encoder_layers;
        int64_t sparse = sparse_layers(c, decoder);
        syi_json_put_key_integer(json, decoder ? "num_sparse_decoder_layers" : "num_sparse_encoder_layers",
                                 sparse);
        syi_json_put_key_integer(json, decoder ? "decoder_sparse_step" : "encoder_sparse_step",
                                 layers / sparse);
    }
    put_flag(json, "router_bias", c->moe.router_use_bias);
    syi_json_put_key_string(json, "router_dtype", "float32");
    put_flag(json, "router_ignore_padding_tokens", 0);
    put_real(json, "router_jitter_noise", c->moe.jitter_noise);
    put_real(json, "router_aux_loss_coef", c->moe.aux_loss_factor);
    put_real(json, "router_z_loss_coef", c->moe.router_z_loss_factor);
    put_flag(json, "add_router_probs", 0);
}

static void put_dimensions(struct syi_json_writer *json, const struct syi_config *c)
{
    const char *activation = activation_of((int)c->model.mlp_activations);
    int gated = !strncmp(activation, "gated-", 6);
    syi_json_put_key_integer(json, "vocab_size", c->model.vocab_size);
    syi_json_put_key_integer(json, "d_model", c->model.d_model);
    syi_json_put_key_integer(json, "d_kv", c->model.head_dim);
    syi_json_put_key_integer(json, "d_ff", c->model.d_ff);
    syi_json_put_key_integer(json, "num_heads", c->model.num_heads);
    syi_json_put_key_integer(json, "num_layers", c->model.num_encoder_layers);
    syi_json_put_key_integer(json, "num_decoder_layers", c->model.num_decoder_layers);
    syi_json_put_key_integer(json, "relative_attention_num_buckets", c->model.relpos_num_buckets);
    syi_json_put_key_integer(json, "relative_attention_max_distance", c->model.relpos_max_distance);
    put_real(json, "layer_norm_epsilon", c->model.layer_norm_epsilon);
    put_real(json, "dropout_rate", c->model.dropout_rate);
    syi_json_put_key_string(json, "feed_forward_proj", activation);
    syi_json_put_key_string(json, "dense_act_fn",
                            !strcmp(activation, "gated-gelu") ? "gelu_new" : activation + (gated ? 6 : 0));
    put_flag(json, "is_gated_act", gated);
}

/* Ids of the end of a text and of what is unknown, where a vocabulary has them as T5. */
enum { END = 1, UNKNOWN = 2 };

/* Of targets. A SentencePiece model says its own; one that cannot be read here is no reason to write no weights. */
static int read_special_ids(struct syi_export *export, struct sy_error *err)
{
    struct syi_vocabulary vocabulary = {0};
    struct sy_error why = {0};
    const struct syi_vocabulary_part *part = syi_config_vocabulary(&export->config, 1);
    export->end = END, export->unknown = UNKNOWN;
    if (part->kind != SYI_VOCABULARY_sentencepiece) return SY_OK;
    int status = syi_vocabulary_make(&vocabulary, part, &why);
    if (status == SY_ENOMEM) return syi_error(err, status, "%s", why.text);
    if (status)
        syi_text_printf(&export->said, "the end of a text is taken to be id %d: %s\n", END, why.text);
    else
        export->end = vocabulary.end, export->unknown = vocabulary.unknown;
    syi_vocabulary_close(&vocabulary);
    return SY_OK;
}

/* NULL: there is none for this vocabulary, or the model has no rows for it (as where its texts are elsewhere). */
static const char *tokenizer_class(const struct syi_export *export)
{
    enum { BYTE_IDS = 259 };
    const struct syi_config *c = &export->config;
    const struct syi_vocabulary_part *part = syi_config_vocabulary(c, 0);
    if (part != syi_config_vocabulary(c, 1) || export->end != END || export->unknown != UNKNOWN) return NULL;
    if (part->kind == SYI_VOCABULARY_sentencepiece) return "T5Tokenizer";
    int fits = BYTE_IDS + part->extra_ids <= c->model.vocab_size;
    return part->kind == SYI_VOCABULARY_bytes && fits ? "ByT5Tokenizer" : NULL;
}

static void put_config(struct syi_json_writer *json, const struct syi_export *export,
                       enum syi_hf_family family)
{
    static const struct {
        const char *type, *architecture;
    } names[] = {[SYI_HF_T5] = {"t5", "T5ForConditionalGeneration"},
                 [SYI_HF_MT5] = {"mt5", "MT5ForConditionalGeneration"},
                 [SYI_HF_UMT5] = {"umt5", "UMT5ForConditionalGeneration"},
                 [SYI_HF_SWITCH] = {"switch_transformers", "SwitchTransformersForConditionalGeneration"}};
    const struct syi_config *c = &export->config;
    syi_json_open(json, '{');
    syi_json_put_key_string(json, "model_type", names[family].type);
    syi_json_put_key(json, "architectures");
    syi_json_open(json, '[');
    syi_json_put_string(json, names[family].architecture);
    syi_json_close(json, ']');
    put_dimensions(json, c);
    if (family == SYI_HF_SWITCH) put_switch(json, c);
    put_flag(json, "tie_word_embeddings", c->model.logits_via_embedding && !has_copy(c));
    if (family != SYI_HF_SWITCH) put_flag(json, "scale_decoder_outputs", syi_export_is_scaled(c));
    put_flag(json, "is_encoder_decoder", 1);
    syi_json_put_key_integer(json, "pad_token_id", 0);
    syi_json_put_key_integer(json, "eos_token_id", export->end);
    syi_json_put_key_integer(json, "decoder_start_token_id", c->model.decoder_start_token_id);
    syi_json_put_key_integer(json, "n_positions", c->data.max_input_length);
    if (tokenizer_class(export)) syi_json_put_key_string(json, "tokenizer_class", tokenizer_class(export));
    syi_json_put_key_string(json, "torch_dtype",
                            export->dtype == SYI_SAFETENSORS_BF16 ? "bfloat16" : "float32");
    syi_json_put_key_string(json, "transformers_version", "5.0.0");
    syi_json_close(json, '}');
}

/* top_k is 50 there where nothing is said. */
static void put_draws(struct syi_json_writer *json, const struct syi_config *c)
{
    put_flag(json, "do_sample", 1);
    put_real(json, "temperature", c->decode.temperature);
    syi_json_put_key_integer(json, "top_k", c->decode.topk);
    put_real(json, "top_p", c->decode.topp > 0 ? c->decode.topp : 1);
}

/* Beams are written where they are those of transformers; T5X's have another penalty. There are no more outputs than beams
 * there. */
static void put_generation(struct syi_json_writer *json, const struct syi_export *export,
                           enum syi_hf_family family)
{
    const struct syi_config *c = &export->config;
    int draws = c->decode.temperature > 0, beams = c->decode.length_penalty == SYI_LENGTH_PENALTY_POWER;
    (void)family;
    syi_json_open(json, '{');
    syi_json_put_key_integer(json, "pad_token_id", 0);
    syi_json_put_key_integer(json, "eos_token_id", export->end);
    syi_json_put_key_integer(json, "decoder_start_token_id", c->model.decoder_start_token_id);
    syi_json_put_key_integer(json, "max_new_tokens",
                             c->decode.max_length ? c->decode.max_length : c->data.max_target_length);
    if (draws) put_draws(json, c);
    if (draws || beams) syi_json_put_key_integer(json, "num_return_sequences", c->decode.num_decodes);
    if (beams) {
        int64_t least = draws ? 1 : c->decode.num_decodes;
        syi_json_put_key_integer(json, "num_beams", c->decode.beams > least ? c->decode.beams : least);
        put_real(json, "length_penalty", c->decode.alpha);
        syi_json_put_key(json, "early_stopping");
        if (c->decode.early_stopping == SYI_EARLY_STOPPING_NEVER)
            syi_json_put_string(json, "never");
        else
            syi_json_put_bool(json, c->decode.early_stopping == SYI_EARLY_STOPPING_TRUE);
    }
    syi_json_close(json, '}');
}

static void put_tokenizer(struct syi_json_writer *json, const struct syi_export *export,
                          enum syi_hf_family family)
{
    (void)family;
    syi_json_open(json, '{');
    syi_json_put_key_string(json, "tokenizer_class", tokenizer_class(export));
    syi_json_put_key_integer(json, "extra_ids", syi_config_vocabulary(&export->config, 0)->extra_ids);
    syi_json_put_key_string(json, "pad_token", "<pad>");
    syi_json_put_key_string(json, "eos_token", "</s>");
    syi_json_put_key_string(json, "unk_token", "<unk>");
    put_flag(json, "legacy", 1);
    syi_json_close(json, '}');
}

static int write_json(const struct syi_export *export, const char *to, const char *name,
                      enum syi_hf_family family,
                      void (*put)(struct syi_json_writer *, const struct syi_export *, enum syi_hf_family),
                      struct sy_error *err)
{
    struct syi_text text = {0};
    struct syi_json_writer json;
    char *path = syi_format("%s/%s", to, name);
    syi_json_begin(&json, &text);
    put(&json, export, family);
    syi_text_puts(&text, "\n");
    int status = path ? syi_text_status(&text, err) : syi_error(err, SY_ENOMEM, "out of memory");
    if (!status) status = syi_file_write(path, text.data, text.length, err);
    syi_text_free(&text);
    syi_free(path);
    return status;
}

/* ---- the tokenizer ---- */

static int copy_model(const struct syi_export *export, const char *to, struct sy_error *err)
{
    char *path = syi_format("%s/spiece.model", to), *bytes = NULL;
    size_t n;
    int status = path ? syi_file_read(syi_config_vocabulary(&export->config, 0)->file, &bytes, &n, err)
                      : syi_error(err, SY_ENOMEM, "out of memory");
    if (!status) status = syi_file_write(path, bytes, n, err);
    syi_free(bytes);
    syi_free(path);
    return status;
}

static int write_tokenizer(struct syi_export *export, const char *to, enum syi_hf_family family,
                           struct sy_error *err)
{
    const struct syi_vocabulary_part *part = syi_config_vocabulary(&export->config, 0);
    if (!tokenizer_class(export)) {
        syi_text_puts(&export->said, "no tokenizer is written: transformers has none like this vocabulary\n");
        return SY_OK;
    }
    int status = part->kind == SYI_VOCABULARY_sentencepiece ? copy_model(export, to, err) : SY_OK;
    return status ? status : write_json(export, to, "tokenizer_config.json", family, put_tokenizer, err);
}

/* Beams that generate() does not search, or ends otherwise. */
static void say_beams(struct syi_export *export)
{
    const struct syi_decode_part *d = &export->config.decode;
    if (d->temperature > 0 || syi_decode_sequences(d) == 1) return;
    if (d->length_penalty != SYI_LENGTH_PENALTY_POWER)
        syi_text_puts(
            &export->said,
            "generation_config.json has no beams, so transformers decodes greedily: it has nothing like "
            "decode.length_penalty = \"gnmt\"; --set decode.length_penalty=power exports them\n");
    else if (d->finished_beams != SYI_FINISHED_BEAMS_HUGGINGFACE)
        syi_text_puts(&export->said,
                      "generation_config.json: in transformers other beams are outputs than by "
                      "decode.finished_beams = \"t5x\"\n");
}

static int write_folder(struct syi_export *export, const char *to, struct sy_error *err)
{
    enum syi_hf_family family = family_of(&export->config);
    int status = check_config(&export->config, family, err);
    if (!status) status = read_special_ids(export, err);
    if (!status) warn_of_versions(&export->config, family);
    if (!status) status = write_tensors(export, to, family, err);
    if (!status) status = write_json(export, to, "config.json", family, put_config, err);
    if (!status) status = write_json(export, to, "generation_config.json", family, put_generation, err);
    if (!status) say_beams(export);
    return status ? status : write_tokenizer(export, to, family, err);
}

const struct syi_export_format syi_export_hf = {
    "hf", "a folder of Hugging Face transformers: T5, UMT5 or Switch Transformers", write_folder};
