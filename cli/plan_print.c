/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as text and as JSON. Numbers were counted before. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/optimizers.h"
#include "cli/cli.h"
#include "cli/plan_report.h"

static const char *const segment_names[SYI_SEGMENT_COUNT] = {"persist", "io",       "carry",
                                                             "scratch", "snapshot", "staging"};
static const char *const kinds[] = {
    [SYI_PARAM] = "parameters", [SYI_STATE] = "optimizer state",          [SYI_INPUT] = "inputs",
    [SYI_OUTPUT] = "outputs",   [SYI_CARRY] = "carried between programs",
};
static const char *const kind_names[] = {
    [SYI_PARAM] = "param",   [SYI_STATE] = "state", [SYI_INPUT] = "input",
    [SYI_OUTPUT] = "output", [SYI_CARRY] = "carry",
};

static double mebibytes(uint64_t bytes)
{
    return (double)bytes / 1048576;
}

/* ---- text ---- */

static void print_range(const char *what, const int64_t range[2])
{
    if (range[1] > range[0]) printf(", %s %lld to %lld", what, (long long)range[0], (long long)range[1] - 1);
}

static void print_places(const struct plan_report *r)
{
    printf("ranks, one a device:\n");
    for (int i = 0; i < plan_places(r); i++) {
        struct plan_place place = plan_place(r, i);
        if (place.n > 1)
            printf("  %d to %d: data %d expert %d model 0 to %d", place.first, place.first + place.n - 1,
                   place.data, place.expert, place.n - 1);
        else
            printf("  %d: data %d expert %d model 0", place.first, place.data, place.expert);
        print_range("rows", place.rows);
        print_range("experts", place.experts);
        printf("\n");
    }
}

static void print_spec(const struct syi_shared *s)
{
    printf("  %-64s [", s->name);
    for (int d = 0; d < s->info.rank; d++)
        printf("%s%lld%s%s", d ? ", " : "", (long long)s->global[d], s->info.split[d] ? "/" : "",
               syi_mesh_letters(s->info.split[d]));
    printf("] (");
    for (int d = 0; d < s->info.rank; d++) printf("%s%s", d ? ", " : "", syi_axis_name(s->info.axis[d]));
    printf(")\n");
}

static void print_specs(const struct plan_report *r)
{
    const struct syi_shared *s;
    for (int kind = SYI_PARAM; kind <= SYI_CARRY; kind++) {
        int any = 0;
        for (size_t i = 0; (s = syi_session_shared(syi_engine_session(r->engine), i)); i++) {
            if (s->info.kind != kind) continue;
            if (!any) printf("%s:\n", kinds[kind]);
            any = 1;
            print_spec(s);
        }
    }
}

/* "optimizer" or "optimizer.NAME" */
static void put_part(const struct syi_optimizer_part *part, struct syi_text *text)
{
    syi_text_printf(text, "optimizer%s%s", *part->name_of_part ? "." : "", part->name_of_part);
}

static void put_optimizers(const struct plan_report *r, struct syi_text *text)
{
    syi_text_puts(text, "optimizers:\n");
    for (int i = 0; i < r->config->optimizer.n; i++) {
        const struct syi_optimizer_part *part = &r->config->optimizer.part[i];
        syi_text_puts(text, "  ");
        put_part(part, text);
        syi_text_printf(
            text, " of %llu parameters, %llu elements: ", (unsigned long long)r->optimizer[i].parameters,
            (unsigned long long)r->optimizer[i].elements);
        if (part->name == SYI_OPTIMIZER_NONE)
            syi_text_puts(text, "none, they stay as they are");
        else
            syi_terms_print_list(&r->chains[i].terms, text);
        if (*part->lr_factors) syi_text_printf(text, ", learning rate %s", part->lr_factors);
        syi_text_puts(text, "\n");
    }
}

static void print_bytes(const char *what, uint64_t bytes, const char *note)
{
    printf("  %-8s %15llu bytes  %9.1f MiB%s\n", what, (unsigned long long)bytes, mebibytes(bytes), note);
}

/* Staging is there with device memory only. */
static int segments(const struct syi_plan *p)
{
    return p->on_device ? SYI_SEGMENT_COUNT : SYI_STAGING;
}

static void print_device(const struct plan_report *r, const struct syi_plan *p)
{
    uint64_t bytes = syi_plan_device_bytes(p), left = syi_session_device_free(syi_engine_session(r->engine));
    char text[160] = "";
    if (left)
        snprintf(text, sizeof text, "  of %.1f MiB free there%s", mebibytes(left),
                 bytes <= left
                     ? ""
                     : ": too little; memory.budget, data.batch_size, train.microbatches and mesh.zero "
                       "make it smaller");
    print_bytes("device", bytes, text);
    printf("           %s\n",
           p->links ? "(persist, io, carry, scratch and staging)" : "(persist, io, carry and scratch)");
}

static void print_memory(const struct plan_report *r)
{
    const struct syi_plan *p = syi_session_plan(syi_engine_session(r->engine));
    uint64_t host = syi_plan_host_bytes(p), here = r->rank->memory;
    char weights[80], free_here[80] = "";
    snprintf(weights, sizeof weights, "  weights %.1f, optimizer %.1f", mebibytes(r->kind_bytes[SYI_PARAM]),
             mebibytes(r->kind_bytes[SYI_STATE]));
    const char *const notes[SYI_SEGMENT_COUNT] = {weights,
                                                  "  batches, results",
                                                  "  gradients, caches",
                                                  "  what ops leave for others",
                                                  "  persist, for checkpoints",
                                                  "  what ranks exchange"};
    printf("memory of a rank:\n");
    for (int i = 0; i < segments(p); i++) print_bytes(segment_names[i], p->bytes[i], notes[i]);
    if (p->on_device) {
        print_device(r, p);
        print_bytes("host", host,
                    p->links ? "  a mirror of the first three and snapshot"
                             : "  a mirror of the first three, snapshot and staging");
    }
    if (here)
        snprintf(free_here, sizeof free_here, "  %s %.1f MiB free here%s", p->on_device ? "host:" : "of",
                 mebibytes(here), host > here ? ": too little" : "");
    print_bytes("all", syi_plan_bytes(p), free_here);
}

/* The ten lines that most readers want. */
static void print_summary(const struct plan_report *r)
{
    char line[256];
    int dtype = r->config->model.dtype == SYI_DTYPE_BFLOAT16 ? SY_BF16 : SY_F32; /* of most products */
    syi_rank_describe(r->rank, line, sizeof line);
    cli_print_line(line, 2);
    printf("%llu parameters in %zu tensors, %llu active for a token\n", (unsigned long long)r->parameters,
           syi_engine_model(r->engine)->n, (unsigned long long)r->active);
    print_memory(r);
    if (r->untimed)
        printf("the longest step: no time, %s\n", r->untimed);
    else
        printf("the longest step: %.2g s or more at %.0f GFLOP/s, %.0f GB/s; bench times steps\n", r->seconds,
               bench_peak(&r->machine, dtype) * 1e-9, r->machine.copy * 1e-9);
}

static void print_step(const struct plan_report *r)
{
    char line[160];
    snprintf(line, sizeof line,
             "a step at the longest bucket: %llu ops, %llu collectives, %.1f MiB received by a rank",
             (unsigned long long)r->ops, (unsigned long long)r->all.calls, mebibytes(r->all.bytes));
    cli_print_line(line, 2);
    for (int op = 0; op < SY_OP_COUNT; op++)
        if (r->traffic[op].calls)
            printf("  %-14s %6llu calls %15llu bytes  %9.1f MiB\n", syi_op_info(op)->name,
                   (unsigned long long)r->traffic[op].calls, (unsigned long long)r->traffic[op].bytes,
                   mebibytes(r->traffic[op].bytes));
    printf("its arithmetic: %.4g GFLOP, %.1f MiB read and written\n", r->flops * 1e-9, r->bytes / 1048576);
    if (r->recomputed_ops)
        printf("computed again for memory.budget: %llu ops, %.4g GFLOP, %.2f %% of its arithmetic\n",
               (unsigned long long)r->recomputed_ops, r->recomputed_flops * 1e-9,
               100 * r->recomputed_flops / r->flops);
    if (r->weighed)
        printf("more every %lld steps (metrics.weights_every): %llu ops, %.4g GFLOP,\n"
               "  %.1f MiB read and written, %.1f MiB received\n",
               (long long)r->config->metrics.weights_every, (unsigned long long)r->weigh_ops,
               r->weigh_flops * 1e-9, r->weigh_bytes / 1048576, mebibytes(r->weigh_received));
    if (r->rank->ranks > 1) printf("arithmetic of all ranks: %.4g GFLOP\n", r->flops * r->rank->ranks * 1e-9);
}

static void print_changed(const struct plan_report *r)
{
    char line[160];
    snprintf(line, sizeof line,
             "planned with reproducible.blocks=%lld reproducible.min_leaf=%lld, which this mesh needs",
             (long long)r->config->reproducible.blocks, (long long)r->config->reproducible.min_leaf);
    cli_print_line(line, 2);
}

int plan_print_text(const struct plan_report *r, struct sy_error *err)
{
    struct syi_text text = {0};
    put_optimizers(r, &text);
    int status = syi_text_status(&text, err);
    if (status) return status;
    print_summary(r);
    if (r->t5x[0])
        printf("T5X's mesh data=%lld model=%lld%s\n", (long long)r->t5x[0], (long long)r->t5x[1],
               r->two_data_axes ? ", both of them data axes" : "");
    if (r->changed) print_changed(r);
    print_step(r);
    for (char *line = strtok(text.data, "\n"); line; line = strtok(NULL, "\n")) cli_print_line(line, 4);
    print_places(r);
    if (r->tensors) print_specs(r);
    syi_text_free(&text);
    return SY_OK;
}

/* ---- JSON ---- */

static void put_list(struct syi_json_writer *w, const char *key, const int64_t *value, int n)
{
    syi_json_put_key(w, key);
    syi_json_open(w, '[');
    for (int i = 0; i < n; i++) syi_json_put_integer(w, value[i]);
    syi_json_close(w, ']');
}

static void put_mesh(struct syi_json_writer *w, const struct plan_report *r)
{
    static const char *const axes[3] = {"data", "expert", "model"};
    syi_json_put_key(w, "mesh");
    syi_json_open(w, '{');
    for (int i = 0; i < 3; i++) syi_json_put_key_integer(w, axes[i], r->rank->mesh.size[i]);
    syi_json_put_key_integer(w, "zero", r->rank->mesh.zero);
    syi_json_close(w, '}');
    if (!r->t5x[0]) return;
    syi_json_put_key(w, "t5x_mesh");
    syi_json_open(w, '{');
    syi_json_put_key_integer(w, "data", r->t5x[0]);
    syi_json_put_key_integer(w, "model", r->t5x[1]);
    syi_json_put_key(w, "two_data_axes");
    syi_json_put_bool(w, r->two_data_axes);
    syi_json_close(w, '}');
}

/* Every rank by itself; rows and experts as [first, one past the last]. */
static void put_ranks(struct syi_json_writer *w, const struct plan_report *r)
{
    syi_json_put_key(w, "ranks");
    syi_json_open(w, '[');
    for (int i = 0; i < plan_places(r); i++) {
        struct plan_place place = plan_place(r, i);
        for (int model = 0; model < place.n; model++) {
            syi_json_open(w, '{');
            syi_json_put_key_integer(w, "rank", place.first + model);
            syi_json_put_key_integer(w, "data", place.data);
            syi_json_put_key_integer(w, "expert", place.expert);
            syi_json_put_key_integer(w, "model", model);
            put_list(w, "rows", place.rows, 2);
            put_list(w, "experts", place.experts, 2);
            syi_json_close(w, '}');
        }
    }
    syi_json_close(w, ']');
}

static void put_tensor(struct syi_json_writer *w, const struct syi_shared *s)
{
    syi_json_open(w, '{');
    syi_json_put_key_string(w, "name", s->name);
    syi_json_put_key_string(w, "kind", kind_names[s->info.kind]);
    syi_json_put_key_string(w, "dtype", syi_dtype_name(s->info.dtype));
    put_list(w, "shape", s->global, s->info.rank);
    put_list(w, "local_shape", s->info.dim, s->info.rank);
    syi_json_put_key(w, "axes");
    syi_json_open(w, '[');
    for (int d = 0; d < s->info.rank; d++) syi_json_put_string(w, syi_axis_name(s->info.axis[d]));
    syi_json_close(w, ']');
    syi_json_put_key(w, "split");
    syi_json_open(w, '[');
    for (int d = 0; d < s->info.rank; d++) syi_json_put_string(w, syi_mesh_letters(s->info.split[d]));
    syi_json_close(w, ']');
    syi_json_put_key_integer(w, "local_bytes",
                             syi_tensor_count(&s->info) * (int64_t)syi_dtype_bytes(s->info.dtype));
    syi_json_close(w, '}');
}

static void put_tensors(struct syi_json_writer *w, const struct plan_report *r)
{
    const struct syi_shared *s;
    syi_json_put_key(w, "tensors");
    syi_json_open(w, '[');
    for (size_t i = 0; (s = syi_session_shared(syi_engine_session(r->engine), i)); i++) put_tensor(w, s);
    syi_json_close(w, ']');
}

/* Text of the key's value; takes what is in text. */
static void put_taken(struct syi_json_writer *w, struct syi_text *text)
{
    syi_json_put_string(w, text->data ? text->data : "");
    if (text->status) w->out->status = text->status;
    syi_text_free(text);
}

static void put_optimizer(struct syi_json_writer *w, const struct plan_report *r, int i)
{
    const struct syi_optimizer_part *part = &r->config->optimizer.part[i];
    const struct syi_terms *terms = &r->chains[i].terms;
    struct syi_text text = {0};
    syi_json_open(w, '{');
    syi_json_put_key(w, "part");
    put_part(part, &text);
    put_taken(w, &text);
    syi_json_put_key_string(w, "name", syi_optimizer_info(part->name)->name);
    syi_json_put_key(w, "chain");
    syi_json_open(w, '[');
    for (int t = 0; t < terms->n; t = terms->term[t].end) {
        syi_terms_print(terms, t, &text);
        put_taken(w, &text);
    }
    syi_json_close(w, ']');
    syi_json_put_key_string(w, "lr_factors", part->lr_factors);
    syi_json_put_key_integer(w, "tensors", (int64_t)r->optimizer[i].parameters);
    syi_json_put_key_integer(w, "elements", (int64_t)r->optimizer[i].elements);
    syi_json_close(w, '}');
}

static void put_memory(struct syi_json_writer *w, const struct plan_report *r)
{
    const struct syi_plan *p = syi_session_plan(syi_engine_session(r->engine));
    syi_json_put_key(w, "rank_bytes");
    syi_json_open(w, '{');
    for (int i = 0; i < segments(p); i++) syi_json_put_key_integer(w, segment_names[i], (int64_t)p->bytes[i]);
    if (p->on_device) {
        syi_json_put_key_integer(w, "device", (int64_t)syi_plan_device_bytes(p));
        syi_json_put_key_integer(w, "host", (int64_t)syi_plan_host_bytes(p));
    }
    syi_json_put_key_integer(w, "all", (int64_t)syi_plan_bytes(p));
    syi_json_close(w, '}');
    if (r->rank->memory) syi_json_put_key_integer(w, "free_bytes", (int64_t)r->rank->memory);
    uint64_t left = syi_session_device_free(syi_engine_session(r->engine));
    if (left) syi_json_put_key_integer(w, "device_free_bytes", (int64_t)left);
}

static void put_traffic(struct syi_json_writer *w, const char *key, const struct plan_traffic *traffic)
{
    syi_json_put_key(w, key);
    syi_json_open(w, '{');
    syi_json_put_key_integer(w, "calls", (int64_t)traffic->calls);
    syi_json_put_key_integer(w, "received_bytes", (int64_t)traffic->bytes);
    syi_json_close(w, '}');
}

static void put_step(struct syi_json_writer *w, const struct plan_report *r)
{
    syi_json_put_key(w, "step");
    syi_json_open(w, '{');
    syi_json_put_key_integer(w, "ops", (int64_t)r->ops);
    if (!r->untimed) syi_json_put_key_double(w, "least_seconds", r->seconds);
    syi_json_put_key_double(w, "recomputed_flops", r->recomputed_flops);
    syi_json_put_key_double(w, "rank_flops", r->flops);
    syi_json_put_key_double(w, "flops", r->flops * r->rank->ranks);
    syi_json_put_key_double(w, "rank_traffic_bytes", r->bytes);
    put_traffic(w, "communication", &r->all);
    syi_json_put_key(w, "collectives");
    syi_json_open(w, '{');
    for (int op = 0; op < SY_OP_COUNT; op++)
        if (r->traffic[op].calls) put_traffic(w, syi_op_info(op)->name, &r->traffic[op]);
    syi_json_close(w, '}');
    syi_json_close(w, '}');
}

/* What update_metrics adds to a step that runs it. */
static void put_weighed(struct syi_json_writer *w, const struct plan_report *r)
{
    if (!r->weighed) return;
    syi_json_put_key(w, "weight_metrics");
    syi_json_open(w, '{');
    syi_json_put_key_integer(w, "every", r->config->metrics.weights_every);
    syi_json_put_key_integer(w, "ops", (int64_t)r->weigh_ops);
    syi_json_put_key_double(w, "rank_flops", r->weigh_flops);
    syi_json_put_key_double(w, "rank_traffic_bytes", r->weigh_bytes);
    syi_json_put_key_integer(w, "received_bytes", (int64_t)r->weigh_received);
    syi_json_close(w, '}');
}

int plan_print_json(const struct plan_report *r, struct sy_error *err)
{
    struct syi_text text = {0};
    struct syi_json_writer w;
    syi_json_begin(&w, &text);
    syi_json_open(&w, '{');
    syi_json_put_key_integer(&w, "devices", r->rank->ranks);
    syi_json_put_key_integer(&w, "threads", r->rank->n_threads);
    syi_json_put_key_string(&w, "backend", r->rank->backend->plugin.desc.name);
    put_mesh(&w, r);
    syi_json_put_key_integer(&w, "reproducible.blocks", r->config->reproducible.blocks);
    syi_json_put_key_integer(&w, "reproducible.min_leaf", r->config->reproducible.min_leaf);
    syi_json_put_key(&w, "reproducible_changed");
    syi_json_put_bool(&w, r->changed);
    syi_json_put_key_integer(&w, "parameters", (int64_t)r->parameters);
    syi_json_put_key_integer(&w, "active_parameters", (int64_t)r->active);
    put_ranks(&w, r);
    put_tensors(&w, r);
    syi_json_put_key(&w, "optimizers");
    syi_json_open(&w, '[');
    for (int i = 0; i < r->config->optimizer.n; i++) put_optimizer(&w, r, i);
    syi_json_close(&w, ']');
    put_memory(&w, r);
    put_step(&w, r);
    put_weighed(&w, r);
    syi_json_close(&w, '}');
    int status = syi_text_status(&text, err);
    if (!status) puts(text.data);
    syi_text_free(&text);
    return status;
}
