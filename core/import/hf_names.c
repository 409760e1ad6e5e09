/* SPDX-License-Identifier: Apache-2.0 */
/* Names of parameters in transformers' T5, mT5, UMT5 and Switch models, by ours. Kernels there are [out, in], so matrices
 * are transposed; heads are contiguous on both sides. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "import/hf.h"

enum { ENCODER = 1, DECODER = 2, BOTH = 3, TRANSPOSED = 4, EXPERTS = 8, SWITCH = 16 };

/* Of a layer: what stands after "S/layers_i/" here and after "S.block.i." there. @ is the sublayer of the MLP, 1 in the
 * encoder and 2 in the decoder; # the MLP's name, mlp in Switch models; %d the expert. */
static const struct row {
    const char *ours, *theirs;
    int flags;
} layer_rows[] = {
    {"pre_attention_layer_norm/scale", "layer.0.layer_norm.weight", ENCODER},
    {"pre_self_attention_layer_norm/scale", "layer.0.layer_norm.weight", DECODER},
    {"pre_cross_attention_layer_norm/scale", "layer.1.layer_norm.weight", DECODER},
    {"pre_mlp_layer_norm/scale", "layer.@.layer_norm.weight", BOTH},
    {"attention/query/kernel", "layer.0.SelfAttention.q.weight", ENCODER | TRANSPOSED},
    {"attention/key/kernel", "layer.0.SelfAttention.k.weight", ENCODER | TRANSPOSED},
    {"attention/value/kernel", "layer.0.SelfAttention.v.weight", ENCODER | TRANSPOSED},
    {"attention/out/kernel", "layer.0.SelfAttention.o.weight", ENCODER | TRANSPOSED},
    {"self_attention/query/kernel", "layer.0.SelfAttention.q.weight", DECODER | TRANSPOSED},
    {"self_attention/key/kernel", "layer.0.SelfAttention.k.weight", DECODER | TRANSPOSED},
    {"self_attention/value/kernel", "layer.0.SelfAttention.v.weight", DECODER | TRANSPOSED},
    {"self_attention/out/kernel", "layer.0.SelfAttention.o.weight", DECODER | TRANSPOSED},
    {"encoder_decoder_attention/query/kernel", "layer.1.EncDecAttention.q.weight", DECODER | TRANSPOSED},
    {"encoder_decoder_attention/key/kernel", "layer.1.EncDecAttention.k.weight", DECODER | TRANSPOSED},
    {"encoder_decoder_attention/value/kernel", "layer.1.EncDecAttention.v.weight", DECODER | TRANSPOSED},
    {"encoder_decoder_attention/out/kernel", "layer.1.EncDecAttention.o.weight", DECODER | TRANSPOSED},
    {"relpos_bias/rel_embedding", "layer.0.SelfAttention.relative_attention_bias.weight", BOTH | TRANSPOSED},
    {"mlp/wi/kernel", "layer.@.#.wi.weight", BOTH | TRANSPOSED},
    {"mlp/wi_0/kernel", "layer.@.#.wi_0.weight", BOTH | TRANSPOSED},
    {"mlp/wi_1/kernel", "layer.@.#.wi_1.weight", BOTH | TRANSPOSED},
    {"mlp/wo/kernel", "layer.@.#.wo.weight", BOTH | TRANSPOSED},
    {"mlp/expert/wi/kernel", "layer.@.#.experts.expert_%d.wi.weight", BOTH | TRANSPOSED | EXPERTS | SWITCH},
    {"mlp/expert/wo/kernel", "layer.@.#.experts.expert_%d.wo.weight", BOTH | TRANSPOSED | EXPERTS | SWITCH},
    {"mlp/router/router_weights/w/kernel", "layer.@.#.router.classifier.weight", BOTH | TRANSPOSED | SWITCH},
    {"mlp/router/router_weights/w/bias", "layer.@.#.router.classifier.bias", BOTH | SWITCH},
};

static const struct row other_rows[] = {
    {"token_embedder/embedding", "shared.weight", 0},
    {"decoder/logits_dense/kernel", "lm_head.weight", TRANSPOSED},
    {"encoder/encoder_norm/scale", "encoder.final_layer_norm.weight", 0},
    {"decoder/decoder_norm/scale", "decoder.final_layer_norm.weight", 0},
    {"encoder/relpos_bias/rel_embedding",
     "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", TRANSPOSED},
    {"decoder/relpos_bias/rel_embedding",
     "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", TRANSPOSED},
};

static const struct row *find(const struct row *rows, size_t n, const char *ours, int flags)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(rows[i].ours, ours) && (rows[i].flags & flags) == flags) return &rows[i];
    return NULL;
}

static void fill(struct syi_hf_name *name, const struct row *row)
{
    name->transposed = !!(row->flags & TRANSPOSED);
    name->experts = !!(row->flags & EXPERTS);
}

/* Appends theirs of a layer with its marks replaced. */
static void write_layer(const char *theirs, int decoder, enum syi_hf_family family, char *to, size_t bytes)
{
    size_t used = strlen(to);
    for (; *theirs && used + 1 < bytes; theirs++) {
        const char one[2] = {*theirs, '\0'};
        const char *piece = *theirs == '@'   ? (decoder ? "2" : "1")
                            : *theirs == '#' ? (family == SYI_HF_SWITCH ? "mlp" : "DenseReluDense")
                                             : one;
        used += (size_t)snprintf(to + used, bytes - used, "%s", piece);
    }
}

int syi_hf_name(const char *param, enum syi_hf_family family, struct syi_hf_name *name)
{
    int at = 0, layer, decoder = !strncmp(param, "decoder/", 8);
    const struct row *row = find(other_rows, SYI_COUNT(other_rows), param, 0);
    if (row) {
        snprintf(name->text, sizeof name->text, "%s", row->theirs);
        fill(name, row);
        return 1;
    }
    if (sscanf(param, decoder ? "decoder/layers_%d/%n" : "encoder/layers_%d/%n", &layer, &at) != 1 || !at)
        return 0;
    row = find(layer_rows, SYI_COUNT(layer_rows), param + at, decoder ? DECODER : ENCODER);
    if (!row || (row->flags & SWITCH && family != SYI_HF_SWITCH)) return 0;
    snprintf(name->text, sizeof name->text, "%s.block.%d.", decoder ? "decoder" : "encoder", layer);
    write_layer(row->theirs, decoder, family, name->text, sizeof name->text);
    fill(name, row);
    return 1;
}

void syi_hf_expert_name(const struct syi_hf_name *name, int64_t expert, char text[SYI_HF_NAME])
{
    const char *mark = strstr(name->text, "%d");
    int before = mark ? (int)(mark - name->text) : (int)strlen(name->text);
    snprintf(text, SYI_HF_NAME, "%.*s", before, name->text);
    if (mark) snprintf(text + before, (size_t)(SYI_HF_NAME - before), "%lld%s", (long long)expert, mark + 2);
}
