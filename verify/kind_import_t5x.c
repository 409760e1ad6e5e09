/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints of T5X: every array against the stored one, the model's dimensions, encoder output and logits of one batch,
 * then decoding. A case may take its numbers from another (same_as), or its weights from a folder of transformers
 * (weights_of). */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "verify/import_case.h"
#include "verify/model_case.h"

struct t5x {
    struct verify_import *v;
    struct verify_report *report;   /* of the case with the numbers */
    const struct verify_case *item; /* that case */
    int weights_only;               /* its state is not in this checkpoint */
    int64_t blocks[2];              /* sub-blocks of a scanned encoder and decoder */
    struct verify_model m;          /* config, batch */
    uint8_t *real[2];               /* owned: positions that are compared, of encoder and decoder */
};

/* ---- arrays ---- */

/* A name of T5X taken apart: "S/S/subblock_j/rest" are layers along axis 1. */
struct scanned {
    const char *stack, *rest;
    int64_t first, step;
};

static int is_scanned(const struct t5x *t, const char *name, struct scanned *s)
{
    static const char *const stacks[] = {"encoder", "decoder"};
    for (int i = 0; i < 2; i++) {
        char prefix[32];
        int64_t block = 0;
        int n = snprintf(prefix, sizeof prefix, "%s/%s/", stacks[i], stacks[i]), end = 0;
        if (strncmp(name, prefix, (size_t)n) != 0) continue;
        long long number = 0;
        if (sscanf(name + n, "subblock_%lld/%n", &number, &end) == 1 && end) block = number;
        *s = (struct scanned){stacks[i], name + n + end, block, t->blocks[i]};
        return 1;
    }
    return 0;
}

static void count_blocks(struct t5x *t)
{
    t->blocks[0] = t->blocks[1] = 1;
    for (size_t i = 0; i < t->item->n_tensors; i++) {
        long long block;
        for (int side = 0; side < 2; side++)
            if (sscanf(t->item->tensor[i].name,
                       side ? "target/decoder/decoder/subblock_%lld/"
                            : "target/encoder/encoder/subblock_%lld/",
                       &block) == 1 &&
                block >= t->blocks[side])
                t->blocks[side] = block + 1;
    }
}

/* Elements of ours, which must be as many; NULL: there is no such tensor. */
static float *read_ours(const struct t5x *t, const char *name, int64_t n)
{
    const struct syi_import_tensor *tensor = syi_import_find(&t->v->import, name);
    struct sy_error err = {0};
    int64_t has = 1;
    for (int d = 0; tensor && d < tensor->rank; d++) has *= tensor->dims[d];
    float *data = tensor && has == n ? syi_alloc((size_t)n * sizeof *data, &err) : NULL;
    if (data && syi_import_read(&t->v->import, tensor, data, &err)) {
        syi_free(data);
        return NULL;
    }
    return data;
}

/* The layers of ours put together along axis `axis` of `want`; in the order that T5X has them. NULL as above. */
static float *join_layers(const struct t5x *t, const char *root, const struct scanned *s, const char *slot,
                          const struct verify_tensor *want, int axis)
{
    int64_t layers = want->dim[axis], inner = 1;
    float *all = syi_alloc((size_t)want->n * sizeof *all, NULL);
    for (int d = axis + 1; d < want->rank; d++) inner *= want->dim[d];
    for (int64_t layer = 0; all && layer < layers; layer++) {
        char name[300];
        int64_t at = s->first + layer * s->step;
        snprintf(name, sizeof name, "%s%s/layers_%" PRId64 "/%s%s", root, s->stack, at, s->rest, slot);
        float *ours = read_ours(t, name, want->n / layers);
        for (int64_t i = 0; ours && i < want->n / layers / inner; i++)
            memcpy(all + (i * layers + layer) * inner, ours + i * inner, (size_t)inner * sizeof *ours);
        if (!ours) {
            syi_free(all);
            all = NULL;
        }
        syi_free(ours);
    }
    return all;
}

static int same(const float *got, const struct verify_tensor *want)
{
    return got && !memcmp(got, want->real, (size_t)want->n * sizeof *got);
}

/* Whether ours under this root and slot are the expected elements; layers of a mean may be axis 0. */
static int agrees(const struct t5x *t, const char *root, const char *path, const char *slot,
                  const struct verify_tensor *want)
{
    struct scanned s;
    char name[300];
    int found = 0;
    int cut = is_scanned(t, path, &s) && want->n > 1;
    if (is_scanned(t, path, &s) && want->n == 1)
        snprintf(name, sizeof name, "%s%s/layers_%lld/%s%s", root, s.stack, (long long)s.first, s.rest, slot);
    else
        snprintf(name, sizeof name, "%s%s%s", root, path, slot);
    for (int axis = 0; axis < 2 && axis < want->rank && !found; axis++) {
        float *got = cut ? join_layers(t, root, &s, slot, want, axis) : read_ours(t, name, want->n);
        found = same(got, want);
        syi_free(got);
    }
    return found;
}

/* Whether our slot of a matrix has the axis that its name says: v_row the smaller one, dim 0 of equal ones. */
static int is_by_size(const struct t5x *t, const struct scanned *s, const char *slot)
{
    char name[300], parameter[300];
    snprintf(parameter, sizeof parameter, "target/%s/layers_%lld/%s", s->stack, (long long)s->first, s->rest);
    snprintf(name, sizeof name, "state/param_states/%s/layers_%lld/%s%s", s->stack, (long long)s->first,
             s->rest, slot);
    const struct syi_import_tensor *whole = syi_import_find(&t->v->import, parameter);
    const struct syi_import_tensor *mean = syi_import_find(&t->v->import, name);
    if (!whole || !mean || mean->rank != whole->rank) return 0;
    if (whole->rank != 2) return 1; /* stacks of experts: by their axes */
    int row = whole->dims[1] < whole->dims[0], has = strcmp(slot, "/v_row") ? !row : row;
    return mean->dims[has] == whole->dims[has] && mean->dims[!has] == 1;
}

/* Of a scanned stack the row in T5X is the axis of d_model, here the smaller one: they may have changed places. */
static int state_agrees(const struct t5x *t, const char *name, const struct verify_tensor *want)
{
    static const char root[] = "state/param_states/";
    const char *slot = strrchr(name, '/');
    char path[300];
    struct scanned s;
    snprintf(path, sizeof path, "%.*s", (int)(slot - name - (long)(sizeof root - 1)), name + sizeof root - 1);
    const char *other = !strcmp(slot, "/v_row") ? "/v_col" : !strcmp(slot, "/v_col") ? "/v_row" : NULL;
    if (!other || want->n == 1 || !is_scanned(t, path, &s)) return agrees(t, root, path, slot, want);
    if (agrees(t, root, path, slot, want)) return is_by_size(t, &s, slot);
    return agrees(t, root, path, other, want) && is_by_size(t, &s, other);
}

static void compare_arrays(struct t5x *t)
{
    static const char target[] = "target/", states[] = "state/param_states/";
    int32_t step = (int32_t)t->v->import.step;
    for (size_t i = 0; i < t->item->n_tensors; i++) {
        const struct verify_tensor *want = &t->item->tensor[i];
        int is_target = !strncmp(want->name, target, sizeof target - 1);
        int is_state = !strncmp(want->name, states, sizeof states - 1);
        if (!strcmp(want->name, "state/step")) verify_integers(t->report, want->name, &step, 1);
        if (is_state && t->weights_only) t->report->covered[i] = want->n;
        if ((!is_target && !is_state) || (is_state && t->weights_only)) continue;
        int found = want->real && (is_target ? agrees(t, target, want->name + sizeof target - 1, "", want)
                                             : state_agrees(t, want->name, want));
        verify_judge(t->report, want->name, found ? 0 : 1,
                     found ? NULL : "its elements are not those expected");
    }
}

static void compare_dtype(struct t5x *t)
{
    const struct syi_import *import = &t->v->import;
    const char *want = "";
    struct sy_error err = {0};
    int differ = 0;
    if (!verify_has(t->v->item, "target_dtype") || verify_text(t->v->item, "target_dtype", &want, &err))
        return;
    for (size_t i = 0; i < import->n; i++)
        if (!strncmp(import->tensors[i].name, "target/", 7))
            differ += import->tensors[i].dtype !=
                      (strcmp(want, "bfloat16") ? SYI_SAFETENSORS_F32 : SYI_SAFETENSORS_BF16);
    verify_judge(t->report, "target_dtype", differ, differ ? "parameters are stored in another one" : NULL);
}

/* The same weights, read from the folder of transformers that they were taken from. */
static int compare_weights_of(struct t5x *t, const char *folder, struct sy_error *err)
{
    struct syi_import *other = syi_alloc(sizeof *other, err);
    int status = other ? syi_config_defaults(&other->config, err) : SY_ENOMEM;
    if (!status) status = syi_import_open(other, folder, NULL, err);
    for (size_t i = 0; !status && i < other->n; i++) {
        const struct syi_import_tensor *tensor = &other->tensors[i];
        struct verify_tensor want = {.name = tensor->name, .n = 1};
        for (int d = 0; d < tensor->rank; d++) want.n *= tensor->dims[d];
        float *data = syi_alloc((size_t)want.n * sizeof *data, err), *got;
        status = data ? syi_import_read(other, tensor, data, err) : SY_ENOMEM;
        want.real = data;
        got = status ? NULL : read_ours(t, tensor->name, want.n);
        if (!status)
            verify_judge(t->report, tensor->name, 0,
                         same(got, &want) ? NULL : "it differs from the folder's");
        syi_free(got);
        syi_free(data);
    }
    if (other) syi_import_close(other);
    syi_free(other);
    return status;
}

/* ---- dimensions ---- */

static int64_t member(const struct verify_case *c, uint32_t object, const char *key, int64_t absent)
{
    uint32_t at = syi_json_member(&c->json, object, key);
    if (at == SYI_JSON_NONE) return absent;
    const struct syi_json_node *node = &c->json.nodes[at];
    if (node->kind == SYI_JSON_NUMBER) return (int64_t)node->number;
    return node->kind == SYI_JSON_TRUE;
}

static void compare_network(struct t5x *t)
{
    const struct syi_config *c = &t->v->import.config;
    uint32_t network = syi_json_member(&t->item->json, t->item->config, "network");
    const struct {
        const char *key;
        int64_t has;
    } rows[] = {{"emb_dim", c->model.d_model},
                {"d", c->model.d_model},
                {"v", c->model.vocab_size},
                {"num_heads", c->model.num_heads},
                {"heads", c->model.num_heads},
                {"head_dim", c->model.head_dim},
                {"kv", c->model.head_dim},
                {"num_encoder_layers", c->model.num_encoder_layers},
                {"enc", c->model.num_encoder_layers},
                {"num_decoder_layers", c->model.num_decoder_layers},
                {"dec", c->model.num_decoder_layers},
                {"mlp_dim", c->model.d_ff},
                {"ff", c->model.d_ff},
                {"logits_via_embedding", c->model.logits_via_embedding},
                {"experts", c->moe.num_experts},
                {"expert_ff", c->moe.expert_mlp_dim},
                {"enc_sparse", c->moe.num_encoder_sparse_layers},
                {"dec_sparse", c->moe.num_decoder_sparse_layers}};
    for (size_t i = 0; network != SYI_JSON_NONE && i < SYI_COUNT(rows); i++) {
        char name[80];
        snprintf(name, sizeof name, "network/%s", rows[i].key);
        if (member(t->item, network, rows[i].key, rows[i].has) != rows[i].has)
            verify_judge(t->report, name, 1, "the import found another one");
    }
}

/* ---- one batch ---- */

static void look(void *arg, int program, size_t op, const struct sy_call *call, int after)
{
    struct t5x *t = arg;
    const struct verify_model *m = &t->m;
    const struct syi_program *p = syi_session_program(syi_engine_session(m->engine), program);
    const char *layer = syi_program_name(p, p->op[op].layer);
    if (!after) return;
    if (call->op == SY_OP_RMS_NORM && !strcmp(layer, "encoder/encoder_norm"))
        verify_import_floats(t->v, "out/encoded", call->out[0].data, t->real[0], m->rows * m->input_length,
                             m->config.model.d_model);
    if ((call->op == SY_OP_MATMUL || call->op == SY_OP_MATMUL_NT) && !strcmp(layer, "decoder") &&
        call->out[0].rank == 3 && call->out[0].dim[2] == m->config.model.vocab_size)
        verify_import_floats(t->v, "out/logits", call->out[0].data, t->real[1], m->rows * m->target_length,
                             m->config.model.vocab_size);
}

static int take_batch(struct t5x *t, struct sy_error *err)
{
    struct verify_model *m = &t->m;
    int64_t n[2] = {m->rows * m->input_length, m->rows * m->target_length};
    for (int i = 0; i < 2; i++) {
        t->real[i] = syi_alloc((size_t)n[i], err);
        m->lengths[i] = syi_alloc((size_t)m->rows * sizeof *m->lengths[i], err);
        if (!t->real[i] || !m->lengths[i]) return SY_ENOMEM;
    }
    int status = verify_model_batch(m, 0, 1, err);
    if (status) return status;
    for (int64_t i = 0; i < n[0]; i++) t->real[0][i] = m->batch.encoder_ids[i] > 0;
    for (int64_t i = 0; i < n[1]; i++) t->real[1][i] = m->batch.decoder_targets[i] > 0;
    m->batch.capacity_input = m->batch.input_length;
    m->batch.capacity_target = m->batch.target_length;
    m->batch.loss_weights = syi_alloc((size_t)n[1] * sizeof(float), err);
    m->batch.items = syi_alloc((size_t)m->rows * sizeof *m->batch.items, err);
    if (!m->batch.loss_weights || !m->batch.items) return SY_ENOMEM;
    for (int64_t i = 0; i < n[1]; i++) m->batch.loss_weights[i] = t->real[1][i];
    for (int64_t i = 0; i < m->rows; i++) m->batch.items[i] = i;
    return SY_OK;
}

static int compare_forward(struct t5x *t, struct sy_error *err)
{
    struct syi_eval_sums sums = {0};
    t->v->config = t->m.config;
    int status = verify_import_engine(t->v, SYI_USE_EVAL, &t->m.engine, err);
    if (!status) syi_session_hook(syi_engine_session(t->m.engine), look, t);
    if (!status) status = syi_engine_eval(t->m.engine, &t->m.batch, &sums, err);
    syi_engine_free(t->m.engine);
    t->m.engine = NULL;
    return status;
}

/* ---- decoding ---- */

struct decoded {
    int64_t decodes, length;
    int32_t *ids, *lengths; /* [rows][decodes][length], best first */
    float *scores;
};

/* Expected: ids padded with 0 after the end token. */
static void compare_output(const struct t5x *t, const char *name, uint32_t want, uint32_t score,
                           const struct decoded *d, int64_t i)
{
    const struct syi_json_node *node = t->item->json.nodes;
    char label[160], reason[200] = "";
    double error = 0;
    int64_t at = 0, length = d->lengths[i];
    for (uint32_t id = node[want].first; id != SYI_JSON_NONE && !*reason; id = node[id].next, at++) {
        int64_t got = at < length ? d->ids[i * d->length + at] : at == length && length < d->length ? 1 : 0;
        int missing = score != SYI_JSON_NONE && node[score].number < -1e6; /* a search without so many ends */
        if (got != node[id].integer && !(missing && !isfinite(d->scores[i])))
            snprintf(reason, sizeof reason, "token %lld is %lld, expected %lld", (long long)at,
                     (long long)got, (long long)node[id].integer);
    }
    if (score != SYI_JSON_NONE && node[score].number > -1e6) {
        error = fabs(node[score].number - (double)d->scores[i]);
        if (!*reason && !(error <= 1e-4 * t->report->tolerance))
            snprintf(reason, sizeof reason, "its score is %.7g, expected %.7g", (double)d->scores[i],
                     node[score].number);
    }
    snprintf(label, sizeof label, "decode/%s/%lld", name, (long long)i);
    verify_judge(t->report, label, error, *reason ? reason : NULL);
}

/* Rows of beams stand worst to best there. */
static int compare_decoded(const struct t5x *t, const char *name, uint32_t run, const struct decoded *d,
                           struct sy_error *err)
{
    const struct syi_json *json = &t->item->json;
    const struct syi_json_node *node = json->nodes;
    uint32_t ids = syi_json_member(json, run, "ids"), scores = syi_json_member(json, run, "scores");
    uint32_t row = ids ? node[ids].first : SYI_JSON_NONE,
             score_row = scores ? node[scores].first : SYI_JSON_NONE;
    int64_t i = 0;
    for (; row != SYI_JSON_NONE && i < t->m.rows; row = node[row].next, i++) {
        uint32_t want = d->decodes > 1 ? node[row].first : row;
        uint32_t score = score_row ? node[score_row].first : SYI_JSON_NONE;
        for (int64_t k = d->decodes - 1; k >= 0 && want != SYI_JSON_NONE; k--) {
            compare_output(t, name, want, score, d, i * d->decodes + k);
            want = d->decodes > 1 ? node[want].next : want;
            if (score) score = node[score].next;
        }
        if (score_row) score_row = node[score_row].next;
    }
    return i == t->m.rows && row == SYI_JSON_NONE
               ? SY_OK
               : syi_error(err, SY_EFORMAT, "decode/%s has not a row for each input", name);
}

static int run_decoding(struct t5x *t, const struct decoded *d, double alpha, struct sy_error *err)
{
    struct syi_outputs out = {.decodes = (int32_t)d->decodes, .ids = d->ids, .lengths = d->lengths};
    if (d->decodes > 1) out.scores = d->scores;
    t->v->config = t->m.config;
    t->v->config.decode.beams = t->v->config.decode.num_decodes = d->decodes;
    t->v->config.decode.max_length = d->length;
    t->v->config.decode.alpha = alpha;
    int status = verify_import_engine(t->v, SYI_USE_DECODE, &t->m.engine, err);
    if (!status) status = syi_engine_decode(t->m.engine, &t->m.batch, NULL, &out, err);
    syi_engine_free(t->m.engine);
    t->m.engine = NULL;
    return status;
}

static int compare_run(struct t5x *t, uint32_t run, struct sy_error *err)
{
    const struct syi_json *json = &t->item->json;
    uint32_t alpha = syi_json_member(json, run, "alpha");
    struct decoded d = {.decodes = alpha ? 4 : 1, .length = member(t->item, run, "decode_length", 0)};
    if (d.length < 1 || d.length > 1 << 12) return syi_error(err, SY_EFORMAT, "decode: no decode_length");
    size_t n = (size_t)(t->m.rows * d.decodes);
    d.ids = syi_alloc(n * (size_t)d.length * sizeof *d.ids, err);
    d.lengths = syi_alloc(n * sizeof *d.lengths, err);
    d.scores = syi_alloc(n * sizeof *d.scores, err);
    int status = d.ids && d.lengths && d.scores
                     ? run_decoding(t, &d, alpha ? json->nodes[alpha].number : 0, err)
                     : SY_ENOMEM;
    if (!status) status = compare_decoded(t, syi_json_key(json, run), run, &d, err);
    syi_free(d.ids);
    syi_free(d.lengths);
    syi_free(d.scores);
    return status;
}

static int compare_decoding(struct t5x *t, struct sy_error *err)
{
    const struct syi_json *json = &t->item->json;
    uint32_t all = syi_json_member(json, t->item->config, "decode");
    int status = SY_OK;
    if (all == SYI_JSON_NONE) return SY_OK;
    for (uint32_t i = json->nodes[all].first; i != SYI_JSON_NONE && !status; i = json->nodes[i].next)
        status = compare_run(t, i, err);
    return status;
}

/* ---- the case ---- */

static void close_batch(struct t5x *t)
{
    syi_free(t->m.batch.loss_weights);
    syi_free(t->m.batch.items);
    for (int i = 0; i < 2; i++) {
        syi_free(t->real[i]);
        syi_free(t->m.lengths[i]);
    }
}

/* No token is dropped in any of the cases: their capacity factor, or none. */
static void set_config(struct t5x *t)
{
    uint32_t network = syi_json_member(&t->item->json, t->item->config, "network");
    uint32_t factor = network ? syi_json_member(&t->item->json, network, "factor") : SYI_JSON_NONE;
    t->m.config = t->v->config;
    t->m.config.moe.eval_capacity_factor = factor ? t->item->json.nodes[factor].number : 0;
}

static int compare_numbers(struct t5x *t, const char *checkpoint, struct sy_error *err)
{
    const struct verify_tensor *in = verify_find(t->item, "in/encoder_input_tokens");
    const struct verify_tensor *out = verify_find(t->item, "in/decoder_target_tokens");
    int64_t rows = in && in->rank == 2 ? in->dim[0] : 1, input = in && in->rank == 2 ? in->dim[1] : 1;
    int64_t target = out && out->rank == 2 ? out->dim[1] : 1;
    static const char *const given[] = {"in/encoder_input_tokens", "in/decoder_target_tokens",
                                        "in/decoder_input_tokens"};
    int status = verify_import_open(t->v, checkpoint, rows, input, target, err);
    if (status) return status;
    for (size_t i = 0; i < SYI_COUNT(given); i++) {
        const struct verify_tensor *tensor = verify_find(t->item, given[i]);
        if (tensor) t->report->covered[tensor - t->item->tensor] = tensor->n;
    }
    count_blocks(t);
    compare_arrays(t);
    compare_dtype(t);
    compare_network(t);
    if (!in) return SY_OK;
    t->m.item = t->item;
    t->m.rows = rows;
    t->m.input_length = input;
    t->m.target_length = target;
    set_config(t);
    status = take_batch(t, err);
    if (!status) status = compare_forward(t, err);
    return status ? status : compare_decoding(t, err);
}

/* The report of the case that has the numbers becomes part of this one's. */
static void take_results(struct verify_report *to, struct verify_report *from)
{
    verify_report_end(from);
    for (size_t i = 0; i < from->n; i++)
        verify_judge(to, from->result[i].name, from->result[i].error,
                     from->result[i].reason[0] ? from->result[i].reason : NULL);
    if (from->status) to->status = from->status;
    verify_report_free(from);
}

static void know_keys(const struct verify_case *c)
{
    verify_ignore(
        c,
        "fixture checkpoint target_dtype network vocab_size made_with step decode same_as weights_of state "
        "weights_only mesh logits_error_against_hf");
}

static int compare_same_as(struct t5x *t, const char *folder, const char *checkpoint, struct sy_error *err)
{
    struct verify_case other;
    struct verify_report report = {.item = &other, .tolerance = t->v->report->tolerance};
    int status = verify_case_open_folder(&other, folder, err);
    if (!status) status = verify_case_load(&other, err);
    if (!status) {
        const struct verify_case *item = t->v->item;
        struct verify_report *own = t->v->report;
        report.covered = syi_alloc((other.n_tensors + 1) * sizeof *report.covered, err);
        t->item = t->v->item = &other;
        t->report = t->v->report = &report;
        know_keys(&other);
        status = report.covered ? compare_numbers(t, checkpoint, err) : SY_ENOMEM;
        t->item = t->v->item = item;
        t->report = t->v->report = own;
        if (!status) take_results(own, &report);
    }
    verify_case_close(&other);
    return status;
}

/* What is not supported must be refused, by its name. */
static int is_refused(struct t5x *t, const char *checkpoint)
{
    struct sy_error why = {0};
    char *file = syi_format("%s/state/manifest.ocdbt", checkpoint);
    int there = file && !access(file, F_OK);
    syi_free(file);
    if (!there) return 0;
    int status = verify_import_open(t->v, checkpoint, 1, 1, 1, &why);
    int named = status == SY_EUNSUPPORTED && strstr(why.text, "OCDBT");
    verify_judge(t->v->report, "refused", 0, named ? NULL : "OCDBT is not refused by its name");
    return 1;
}

static int compare_case(struct t5x *t, const char *folder, const char *checkpoint, struct sy_error *err)
{
    const struct verify_case *c = t->v->item;
    const char *other = "";
    char path[2 * sizeof c->path];
    int elsewhere = verify_has(c, "same_as"), status;
    if (is_refused(t, checkpoint)) return SY_OK;
    snprintf(path, sizeof path, "%s/state", checkpoint);
    t->weights_only = verify_has(c, "weights_only") || !access(path, F_OK);
    if (elsewhere) {
        status = verify_text(c, "same_as", &other, err);
        snprintf(path, sizeof path, "%s/../%s", folder, other);
        return status ? status : compare_same_as(t, path, checkpoint, err);
    }
    status = compare_numbers(t, checkpoint, err);
    if (status || !verify_has(c, "weights_of")) return status;
    status = verify_text(c, "weights_of", &other, err);
    snprintf(path, sizeof path, "%s/../../%s", folder, other);
    return status ? status : compare_weights_of(t, path, err);
}

int verify_import_t5x(struct verify_import *v, const char *folder, struct sy_error *err)
{
    struct t5x t = {.v = v, .report = v->report, .item = v->item};
    const char *name = "";
    know_keys(v->item);
    int status = verify_text(v->item, "checkpoint", &name, err);
    char *checkpoint = status ? NULL : syi_format("%s/%s", folder, name);
    if (!status && !checkpoint) status = syi_error(err, SY_ENOMEM, "out of memory");
    if (!status) status = compare_case(&t, folder, checkpoint, err);
    close_batch(&t);
    syi_free(checkpoint);
    return status;
}
