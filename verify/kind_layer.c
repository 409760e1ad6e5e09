/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of kind layer: one building block each, forward and gradients. Masks are in kind_masks.c. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/relpos.h"
#include "model/model.h"
#include "program/grad.h"
#include "program/record.h"
#include "verify/verify.h"

enum { LARGEST = 1 << 20 }; /* of a dim in a configuration */

/* A recording of a sub-kind: fills run->p. Errors of recording stay in the program, those of the
 * configuration are returned. */
typedef int (*record_fn)(struct verify_run *run, struct sy_error *err);

static int extent(struct verify_run *run, char letter, const char *key, struct sy_error *err)
{
    int64_t n = 0;
    int status = verify_int(run->item, key, 1, LARGEST, &n, err);
    verify_extent(run, letter, n);
    return status;
}

/* y as the result, and the gradients of sum(y * cotangent). */
static int finish(struct verify_run *run, int y, const char *letters)
{
    verify_differentiate(run, verify_against(run, y, "in/y_cotangent", letters));
    verify_out(run, y, "out/y");
    return SY_OK;
}

/* ---- norm, gelu, embedding, logits ---- */

static int record_norm(struct verify_run *run, struct sy_error *err)
{
    double epsilon = 0;
    int status = extent(run, 'd', "d_model", err);
    if (!status) status = verify_real(run->item, "epsilon", &epsilon, err);
    if (status) return status;
    int x = verify_in(run, "in/x", "btd"), scale = verify_in(run, "param/scale", "d");
    return finish(run, syi_rms_norm(run->p, x, scale, -1, epsilon), "btd");
}

static int record_gelu(struct verify_run *run, struct sy_error *err)
{
    int slope = -1;
    int status = verify_only(run->item, "gelu", "tanh_approximate", err);
    if (status) return status;
    int x = verify_in(run, "in/x", "d"), y = syi_activation(run->p, x, SY_GELU);
    int sum = syi_total(run->p, y);
    status = syi_program_status(run->p, err);
    if (!status) status = syi_grad(run->p, sum, 1, &x, &slope, err);
    if (status) return status;
    verify_out(run, y, "out/y");
    verify_out(run, slope, "out/dydx");
    return SY_OK;
}

static int dims_of_vocabulary(struct verify_run *run, struct sy_error *err)
{
    int status = extent(run, 'd', "d_model", err);
    return status ? status : extent(run, 'v', "vocab_size", err);
}

static int record_embedding(struct verify_run *run, struct sy_error *err)
{
    int status = dims_of_vocabulary(run, err);
    if (status) return status;
    int ids = verify_in(run, "in/inputs", "bt"), table = verify_in(run, "param/embedding", "vd");
    return finish(run, SYI_RECORD(run->p, SY_OP_EMBED, NULL, ids, table), "btd");
}

static int record_tied(struct verify_run *run, struct sy_error *err)
{
    int status = dims_of_vocabulary(run, err);
    if (status) return status;
    int x = verify_in(run, "in/x", "btd"), table = verify_in(run, "param/embedding", "vd");
    int y = syi_matmul_nt(run->p, x, table);
    return finish(run, syi_map1(run->p, SY_MAP_MULS, y, 1 / sqrt((double)run->extent['d'])), "btv");
}

static int record_untied(struct verify_run *run, struct sy_error *err)
{
    int status = dims_of_vocabulary(run, err);
    if (status) return status;
    int x = verify_in(run, "in/inputs", "btd"), kernel = verify_in(run, "param/kernel", "dv");
    return finish(run, syi_matmul(run->p, x, kernel), "btv");
}

/* ---- relative positions ---- */

struct buckets {
    int64_t count, max_distance;
    int bidirectional;
};

static int read_buckets(const struct verify_case *c, struct buckets *b, struct sy_error *err)
{
    int status = verify_int(c, "num_buckets", 2, LARGEST, &b->count, err);
    if (!status) status = verify_int(c, "max_distance", 1, LARGEST, &b->max_distance, err);
    return status ? status : verify_flag(c, "bidirectional", &b->bidirectional, err);
}

static int32_t bucket(const struct buckets *b, int64_t distance)
{
    return (int32_t)syi_relpos_bucket(distance, b->bidirectional, b->count, b->max_distance);
}

/* Host code: the rule that every kernel with a bias table uses. */
static int run_buckets(const struct verify_case *c, struct verify_report *report, struct sy_error *err)
{
    struct buckets b;
    const struct verify_tensor *in;
    int status = read_buckets(c, &b, err);
    if (!status) status = verify_need(c, "in/relative_position", 'i', 1, (int64_t[]){-1}, &in, err);
    int32_t *out = status ? NULL : syi_alloc(((size_t)in->n + 1) * sizeof *out, err);
    if (!status && !out) status = SY_ENOMEM;
    if (status) return status;
    for (int64_t i = 0; i < in->n; i++) out[i] = bucket(&b, in->integer[i]);
    verify_integers(report, "out/bucket", out, in->n);
    syi_free(out);
    return SY_OK;
}

static int record_bias(struct verify_run *run, struct sy_error *err)
{
    struct buckets b;
    int status = read_buckets(run->item, &b, err);
    if (!status) status = extent(run, 'n', "num_heads", err);
    if (!status) status = extent(run, 't', "qlen", err);
    if (!status) status = extent(run, 's', "klen", err);
    if (status) return status;
    verify_extent(run, 'r', b.count);
    verify_in(run, "in/y_cotangent", "-nts"); /* first: the lengths are believed once a tensor has them */
    int table = verify_in(run, "param/rel_embedding", "nr");
    if (run->p->status) return SY_OK;
    int y =
        syi_relpos_bias(run->p, table, run->extent['t'], run->extent['s'], b.bidirectional, b.max_distance);
    return finish(run, y, "-nts");
}

/* The op looks buckets up; they are made visible here. */
static int report_bias_buckets(const struct verify_case *c, struct verify_report *report,
                               struct sy_error *err)
{
    struct buckets b;
    const struct verify_tensor *y;
    int status = read_buckets(c, &b, err);
    if (!status) status = verify_need(c, "in/y_cotangent", 'f', 4, (int64_t[]){1, -1, -1, -1}, &y, err);
    if (status) return status;
    int64_t queries = y->dim[2], keys = y->dim[3];
    int32_t *out = syi_alloc((size_t)(queries * keys + 1) * sizeof *out, err);
    if (!out) return SY_ENOMEM;
    for (int64_t i = 0; i < queries * keys; i++) out[i] = bucket(&b, i % keys - i / keys);
    verify_integers(report, "out/bucket", out, queries * keys);
    syi_free(out);
    return SY_OK;
}

/* ---- attention ---- */

static int attention_config(struct verify_run *run, struct syi_attention *a, int *self, struct sy_error *err)
{
    const struct verify_case *c = run->item;
    int mask = 0, bias = 0;
    int status = extent(run, 'd', "d_model", err);
    if (!status) status = verify_int(c, "num_heads", 1, LARGEST, &a->heads, err);
    if (!status) status = verify_int(c, "head_dim", 1, LARGEST, &a->head_dim, err);
    if (!status) status = verify_flag(c, "self_attention", self, err);
    if (!status) status = verify_flag(c, "has_mask", &mask, err);
    if (!status) status = verify_flag(c, "has_bias", &bias, err);
    if (!status) status = verify_only(c, "mask_value", "-1e10", err);
    if (status) return status;
    verify_extent(run, 'n', a->heads);
    verify_extent(run, 'h', a->heads * a->head_dim);
    a->uniform = 1; /* as the reference averages where nothing is seen */
    a->mask = mask ? 0 : -1;
    a->dense_bias = bias ? 0 : -1;
    return SY_OK;
}

static int record_attention(struct verify_run *run, struct sy_error *err)
{
    struct syi_program *p = run->p;
    struct syi_attention a = SYI_NO_ATTENTION;
    int self, lse;
    int status = attention_config(run, &a, &self, err);
    if (status) return status;
    int x = verify_in(run, "in/inputs_q", "btd"), memory = self ? -1 : verify_in(run, "in/inputs_kv", "bsd");
    int w[3] = {verify_in(run, "param/query/kernel", "dh"), verify_in(run, "param/key/kernel", "dh"),
                verify_in(run, "param/value/kernel", "dh")};
    if (self) verify_extent(run, 's', run->extent['t']);
    if (a.mask >= 0) a.mask = verify_in(run, "in/mask", "b-ts");
    if (a.dense_bias >= 0) a.dense_bias = verify_in(run, "in/bias", "-nts");
    int out = verify_in(run, "param/out/kernel", "hd");
    if (p->status) return SY_OK;
    if (self) {
        a.q = a.kv = syi_matmul(p, x, syi_pack(p, 3, w));
    } else {
        a.q = syi_matmul(p, x, w[0]);
        a.kv = syi_matmul(p, memory, syi_pack(p, 2, w + 1));
    }
    return finish(run, syi_matmul(p, syi_attention(p, &a, &lse), out), "btd");
}

/* ---- MLP ---- */

static int mlp_config(const struct verify_case *c, struct syi_config *config, struct sy_error *err)
{
    const char *activations = "";
    int status = verify_config(c, "", config, err);
    if (!status) status = verify_text(c, "activations", &activations, err);
    if (!status) status = verify_only(c, "gelu", "tanh_approximate", err);
    char *text = status ? NULL : syi_format("model.mlp_activations=%s", activations);
    if (!status && !text) status = syi_error(err, SY_ENOMEM, "out of memory");
    if (!status) status = syi_config_set(config, text, err);
    syi_free(text);
    return status;
}

/* The model's own MLP; its parameters are found under the names the case gives them. */
static int record_mlp(struct verify_run *run, struct sy_error *err)
{
    struct syi_model model = {0};
    struct syi_build *b = syi_alloc(sizeof *b, err);
    struct syi_config *config = syi_alloc(sizeof *config, err);
    int status = b && config ? mlp_config(run->item, config, err) : SY_ENOMEM;
    if (!status) {
        int gated = syi_activations(config->model.mlp_activations).gated;
        verify_extent(run, 'd', config->model.d_model);
        verify_extent(run, 'f', config->model.d_ff);
        int x = verify_in(run, "in/inputs", "btd");
        verify_in(run, gated ? "param/wi_0/kernel" : "param/wi/kernel", "df");
        if (gated) verify_in(run, "param/wi_1/kernel", "df");
        verify_in(run, "param/wo/kernel", "fd");
        *b = (struct syi_build){.p = run->p, .config = config, .model = &model, .rng = -1};
        if (!run->p->status) finish(run, syi_mlp(b, "param", x), "btd");
    }
    syi_model_free(&model);
    syi_free(config);
    syi_free(b);
    return status;
}

/* ---- all ---- */

static int run_recorded(struct verify_context *context, const struct verify_case *c,
                        struct verify_report *report, record_fn record, struct sy_error *err)
{
    struct verify_run run;
    int status = verify_run_begin(&run, context, c, err);
    if (!status) status = record(&run, err);
    if (!status) status = verify_run_execute(&run, err);
    if (!status) verify_run_report(&run, report);
    verify_run_end(&run);
    return status;
}

int verify_layer(struct verify_context *context, const struct verify_case *c, struct verify_report *report,
                 struct sy_error *err)
{
    static const struct {
        const char *name;
        record_fn record;
    } layers[] = {{"t5_layer_norm", record_norm},  {"relative_position_bias", record_bias},
                  {"attention", record_attention}, {"mlp", record_mlp},
                  {"gelu", record_gelu},           {"embedding", record_embedding},
                  {"tied_logits", record_tied},    {"untied_logits", record_untied}};
    const char *layer = NULL;
    int status = verify_text(c, "layer", &layer, err);
    if (status) return status;
    if (!strcmp(layer, "relative_position_bucket")) return run_buckets(c, report, err);
    if (!strcmp(layer, "masks")) return verify_masks(context, c, report, err);
    for (size_t i = 0; i < SYI_COUNT(layers); i++) {
        if (strcmp(layers[i].name, layer)) continue;
        status = run_recorded(context, c, report, layers[i].record, err);
        if (!status && layers[i].record == record_bias) status = report_bias_buckets(c, report, err);
        return status;
    }
    return syi_error(err, SY_EFORMAT, "layer %s: not known", layer);
}
