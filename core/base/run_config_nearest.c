/* SPDX-License-Identifier: Apache-2.0 */
/* Which key was meant by a name that is none: what other programs call it, a short form, a right name in a wrong section,
 * a misspelling. */
#include "config.h"

#include <limits.h>
#include <string.h>

#include "base/run_config.h"

/* Names that users of other programs type, where the key here is called something else; of keys of parts with names the part
 * is left out. A name with a section goes before the same name without. All arguments of doc/migrate-huggingface.md that are keys
 * here are among them. */
static const struct {
    const char *name, *key;
} elsewhere[] = {
    {"epoch", "train.steps"},
    {"epochs", "train.steps"},
    {"num_epochs", "train.steps"},
    {"num_train_epochs", "train.steps"},
    {"max_steps", "train.steps"},
    {"per_device_train_batch_size", "data.batch_size"},
    {"per_device_eval_batch_size", "decode.batch_size"},
    {"accumulation_steps", "train.microbatches"},
    {"gradient_accumulation_steps", "train.microbatches"},
    {"grad_clip", "train.clip_norm"},
    {"max_grad_norm", "train.clip_norm"},
    {"lr", "train.learning_rate"},
    {"freeze", "optimizer.match"},
    {"frozen", "optimizer.match"},
    {"trainable", "optimizer.match"},
    {"lr_scheduler_type", "train.schedule"},
    {"warmup_ratio", "train.warmup_steps"},
    {"data_seed", "train.seed"},
    {"optim", "optimizer.name"},
    {"optimizer", "optimizer.name"},
    {"adam_beta1", "optimizer.b1"},
    {"adam_beta2", "optimizer.b2"},
    {"adam_epsilon", "optimizer.eps"},
    {"beta2", "optimizer.b2"}, /* beta1 is a key, of Adafactor */
    {"beta_1", "optimizer.b1"},
    {"beta_2", "optimizer.b2"},
    {"eval_steps", "train.evaluate_every"},
    {"eval_strategy", "train.evaluate_every"},
    {"logging_steps", "train.log_every"},
    {"logging_strategy", "train.log_every"},
    {"save_steps", "train.checkpoint_every"},
    {"save_strategy", "train.checkpoint_every"},
    {"save_total_limit", "train.keep_checkpoints"},
    {"gradient_checkpointing", "memory.budget"},
    {"auto_find_batch_size", "memory.budget"},
    {"fsdp", "mesh.zero"},
    {"deepspeed", "mesh.zero"},
    {"dataloader_num_workers", "data.prefetch"},
    {"dataloader_prefetch_factor", "data.prefetch"},
    {"group_by_length", "data.length_buckets"},
    {"length_column_name", "data.length_buckets"},
    {"padding", "data.length_buckets"},
    {"pad_to_multiple_of", "data.length_buckets"},
    {"source_prefix", "task.inputs"},
    {"compute_metrics", "task.metrics"},
    {"predict_with_generate", "task.metrics"},
    {"train_file", "task.train"},
    {"validation_file", "task.valid"},
    {"test_file", "task.test"},
    {"max_source_length", "data.max_input_length"},
    {"max_len", "data.max_input_length"},
    {"max_seq_len", "data.max_input_length"},
    {"max_seq_length", "data.max_input_length"},
    {"seq_len", "data.max_input_length"},
    {"seq_length", "data.max_input_length"},
    {"sequence_length", "data.max_input_length"},
    {"embed_dim", "model.d_model"},
    {"emb_dim", "model.d_model"},
    {"hidden_dim", "model.d_model"},
    {"hidden_size", "model.d_model"},
    {"mlp_dim", "model.d_ff"},
    {"d_kv", "model.head_dim"},
    {"feed_forward_proj", "model.mlp_activations"},
    {"tie_word_embeddings", "model.logits_via_embedding"},
    {"relative_attention_num_buckets", "model.relpos_num_buckets"},
    {"relative_attention_max_distance", "model.relpos_max_distance"},
    {"num_sparse_encoder_layers", "moe.num_encoder_sparse_layers"},
    {"num_sparse_decoder_layers", "moe.num_decoder_sparse_layers"},
    {"router_aux_loss_coef", "moe.aux_loss_factor"},
    {"bf16", "model.dtype"},
    {"precision", "model.dtype"},
    {"beam_size", "decode.beams"},
    {"num_beams", "decode.beams"},
    {"generation_num_beams", "decode.beams"},
    {"generation_max_length", "decode.max_length"}, /* with a note: syi_key_note */
    {"max_new_tokens", "decode.max_length"},
    {"num_return_sequences", "decode.num_decodes"},
    {"do_sample", "decode.temperature"},
    {"top_k", "decode.topk"},
    {"moe.top_k", "moe.num_selected_experts"},
    {"num_experts_per_tok", "moe.num_selected_experts"},
    {"top_p", "decode.topp"},
};

/* ---- how far a name is from a key's: less is nearer ---- */

enum {
    OTHER_NAME = 1, /* as it is called elsewhere */
    OF_A_PART = 1,  /* no section is given, and the key is of parts with names */
    SHORT_FORM = 2,
    LEFT_OUT = 3, /* for each word of the key that a short form leaves out */
    MISSPELT = 2,
    EDIT = 4,          /* for each letter that is wrong */
    OTHER_SECTION = 7, /* than the key's is given */
    FAR = INT_MAX / 2
};

/* How many words of the key a short form leaves out; each of its letters begins a word or follows in one. "lr" leaves none
 * of learning_rate, "batch" one of batch_size, "num_layers" one of num_encoder_layers. FAR: it is no short form. */
static int left_out(const char *name, const char *key)
{
    if (!*key) return *name ? FAR : 0;
    size_t length = strcspn(key, "_");
    const char *next = key + length + (key[length] == '_');
    int least = 1 + left_out(name, next);
    for (size_t n = 1; n <= length && name[n - 1] == key[n - 1]; n++) {
        int rest = left_out(name + n + (name[n] == '_'), next);
        if (rest < least) least = rest;
    }
    return least < FAR ? least : FAR;
}

/* The same of a name that parts the key's words elsewhere: "warm_up" of warmup_steps. */
static int joined_left_out(const char *name, const char *key)
{
    char joined[SYI_KEY] = "";
    size_t n = 0;
    for (const char *at = name; *at && n + 1 < sizeof joined; at++)
        if (*at != '_') joined[n++] = *at;
    joined[n] = '\0';
    return n > 1 && strchr(name, '_') ? left_out(joined, key) : FAR;
}

static int name_distance(const char *name, const char *key)
{
    if (!strcmp(name, key)) return 0;
    int short_form = name[0] && name[1] ? left_out(name, key) : FAR; /* one letter is short for too many */
    if (short_form == FAR) short_form = joined_left_out(name, key);
    if (short_form < FAR) return SHORT_FORM + LEFT_OUT * short_form;
    return syi_is_near(name, key) ? MISSPELT + EDIT * syi_edit_distance(name, key) : FAR;
}

static int is_called_so(const char *name, const struct syi_part_kind *kind, const struct syi_option *option)
{
    char key[SYI_KEY];
    syi_key_text(kind, "", option, key);
    for (size_t i = 0; i < SYI_COUNT(elsewhere); i++)
        if (!strcmp(name, elsewhere[i].name) && !strcmp(key, elsewhere[i].key)) return 1;
    return 0;
}

/* Of "NAME", "SECTION.NAME" or "SECTION.PART.NAME" to a key. */
static int key_distance(const char *text, const struct syi_part_kind *kind, const struct syi_option *option)
{
    const char *first = strchr(text, '.'), *last = strrchr(text, '.'), *name = last ? last + 1 : text;
    char key[SYI_KEY];
    if (is_called_so(text, kind, option)) return 0;
    if (is_called_so(name, kind, option)) return OTHER_NAME;
    int distance = name_distance(name, option->name);
    if (first) {
        size_t length = (size_t)(first - text);
        int same = strlen(kind->name) == length && !strncmp(kind->name, text, length);
        return distance < FAR && !same ? distance + OTHER_SECTION : distance;
    }
    syi_key_text(kind, "", option, key);
    int whole =
        syi_is_near(text, key) ? MISSPELT + EDIT * syi_edit_distance(text, key) : FAR; /* train_steps */
    if (whole < distance) distance = whole;
    return distance < FAR && kind->names == SYI_PART_NAMED ? distance + OF_A_PART : distance;
}

/* A key of this kind as the text would have named it. */
static void write_key(const char *text, const struct syi_part_kind *kind, const struct syi_option *option,
                      char key[SYI_KEY])
{
    const char *first = strchr(text, '.'), *last = strrchr(text, '.');
    char part[SYI_PART_NAME] = "";
    if (first != last) snprintf(part, sizeof(part), "%.*s", (int)(last - first - 1), first + 1);
    const char *named = *part || kind->names != SYI_PART_NAMED ? part : "NAME";
    syi_key_text(kind, kind->names == SYI_PART_ONCE ? "" : named, option, key);
}

const char *syi_key_note(const char *text)
{
    const char *last = strrchr(text, '.'), *name = last ? last + 1 : text;
    int counts_start = !strcmp(name, "generation_max_length") || !strcmp(text, "max_length");
    return counts_start ? " It is one less than Hugging Face's, which counts the first id of the decoder"
                        : "";
}

int syi_key_nearest(const char *text, char nearest[SYI_KEY])
{
    size_t n;
    const struct syi_part_kind *kind = syi_config_kinds(&n);
    int least = FAR;
    *nearest = '\0';
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < kind[k].n_options; i++) {
            int distance = key_distance(text, &kind[k], &kind[k].options[i]);
            if (distance >= least) continue;
            least = distance;
            write_key(text, &kind[k], &kind[k].options[i], nearest);
        }
    return least < FAR;
}
