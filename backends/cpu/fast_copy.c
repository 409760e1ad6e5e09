/* SPDX-License-Identifier: Apache-2.0 */
/* pack, unpack, embed and its gradient, rows of caches, threaded. */
#include "config.h"

#include "backends/cpu/fast.h"
#include "backends/cpu/fast_far.h"

/* ---- pack, unpack ---- */

/* n elements; between dtypes, too. far: past the caches, in whole vectors. */
static void copy(const struct sy_tensor *to, int64_t at, const struct sy_tensor *from, int64_t begin,
                 int64_t n, int far)
{
    int to_half = fast_is_bf16(to), from_half = fast_is_bf16(from);
    if (far && !from_half) {
        for (int64_t i = 0; i < n; i += SYCPU_LANES)
            vf_stream((float *)to->data + at + i, vf_load((const float *)from->data + begin + i));
        return;
    }
    if (to_half == from_half) {
        memcpy(fast_at(to, at), fast_at(from, begin), (size_t)n * (to_half ? 2 : 4));
        return;
    }
#define BODY(c, count)                                                                                       \
    fast_put(to->data, to_half, at + c, fast_get(from->data, from_half, begin + c, count), count)
    FAST_COLUMNS(c, n, BODY);
#undef BODY
}

static int is_far(const struct sy_call *call, const struct sy_attr_pack *attr, int n)
{
    int far = 1;
    for (int i = 0; i < call->n_out; i++) far = far && fast_is_far(&call->out[i]);
    for (int i = 0; i < n; i++) far = far && attr->width[i] % SYCPU_LANES == 0;
    return far;
}

static void interleave(const struct sy_call *call, const struct sy_tensor *whole,
                       const struct sy_tensor *parts, int n, int unpack, int64_t first, int64_t end)
{
    const struct sy_attr_pack *attr = call->attr;
    int last = whole->rank - 1;
    int64_t blocks = parts[0].dim[last] / attr->width[0];
    int64_t packed = first * whole->dim[last], part[3];
    int far = SY_TRAINING && is_far(call, attr, n);
    for (int i = 0; i < n; i++) part[i] = first * parts[i].dim[last];
    for (int64_t block = first * blocks; block < end * blocks; block++) {
        for (int i = 0; i < n; i++) {
            if (unpack)
                copy(&parts[i], part[i], whole, packed, attr->width[i], far);
            else
                copy(whole, packed, &parts[i], part[i], attr->width[i], far);
            part[i] += attr->width[i];
            packed += attr->width[i];
        }
    }
    if (far) vf_stream_end();
}

static void pack_rows(const struct sy_call *call, int64_t first, int64_t end)
{
    interleave(call, &call->out[0], call->in, call->n_in, 0, first, end);
}

static void unpack_rows(const struct sy_call *call, int64_t first, int64_t end)
{
    interleave(call, &call->in[0], call->out, call->n_out, 1, first, end);
}

int fast_pack(void *context, const struct sy_call *call)
{
    (void)context;
    int last = call->out[0].rank - 1;
    fast_rows(call, sycpu_extent(&call->out[0], last), call->out[0].dim[last], pack_rows);
    return SY_OK;
}

int fast_unpack(void *context, const struct sy_call *call)
{
    (void)context;
    int last = call->in[0].rank - 1;
    fast_rows(call, sycpu_extent(&call->in[0], last), call->in[0].dim[last], unpack_rows);
    return SY_OK;
}

/* ---- embed ---- */

static void embed_rows(const struct sy_call *call, int64_t first, int64_t end)
{
    const int32_t *id = call->in[0].data;
    int64_t V = call->in[1].dim[0], D = call->in[1].dim[1];
    float *y = (float *)call->out[0].data + first * D;
    for (int64_t i = first; i < end; i++, y += D) {
        if (id[i] >= 0 && id[i] < V)
            memcpy(y, (const float *)call->in[1].data + id[i] * D, (size_t)D * sizeof *y);
        else
            memset(y, 0, (size_t)D * sizeof *y);
    }
}

int fast_embed(void *context, const struct sy_call *call)
{
    (void)context;
    fast_rows(call, sycpu_count(&call->in[0]), call->in[1].dim[1], embed_rows);
    return SY_OK;
}

/* ---- embed_grad ----
 * Workspace: the positions sorted by id, ascending among equals, after the starts of the ids' runs. Tasks are
 * ranges of columns times ranges of ids with about equally many positions. */

enum { COLUMNS = 64, ID_CHUNKS = 16 };

struct table_grad {
    const struct sy_call *call;
    int64_t *start, *position; /* [V + 1], [positions] */
    int64_t V, D, leaf;        /* leaf: positions of one */
};

static void sort_positions(const struct table_grad *g)
{
    const int32_t *id = g->call->in[0].data;
    int64_t n = sycpu_count(&g->call->in[0]);
    memset(g->start, 0, (size_t)(g->V + 1) * sizeof *g->start);
    for (int64_t i = 0; i < n; i++)
        if (id[i] >= 0 && id[i] < g->V) g->start[id[i] + 1]++;
    for (int64_t v = 0; v < g->V; v++) g->start[v + 1] += g->start[v];
    /* start[v] moves to the end of v's run, which is where start[v + 1] was: shifted back below. */
    for (int64_t i = 0; i < n; i++)
        if (id[i] >= 0 && id[i] < g->V) g->position[g->start[id[i]]++] = i;
    memmove(g->start + 1, g->start, (size_t)g->V * sizeof *g->start);
    g->start[0] = 0;
}

/* The tree over leaves `leaf` .. leaf + n - 1 of positions from .. end - 1, all inside them, on `count`
 * columns. Empty halves are +0 and are not walked, but they are added. */
static void table_tree(const struct table_grad *g, const int64_t *from, const int64_t *end, int64_t leaf,
                       int64_t n, int64_t column, int64_t count, float *sum)
{
    memset(sum, 0, COLUMNS * sizeof *sum);
    if (from == end) return;
    if (n == 1) {
        for (; from < end; from++) {
            const float *dy = (const float *)g->call->in[1].data + *from * g->D + column;
#define BODY(c, lanes) vf_store(sum + c, vf_add(vf_load(sum + c), fast_load(dy + c, lanes)))
            FAST_COLUMNS(c, count, BODY);
#undef BODY
        }
        return;
    }
    float right[COLUMNS];
    const int64_t *middle = from;
    while (middle < end && *middle < (leaf + n / 2) * g->leaf) middle++;
    table_tree(g, from, middle, leaf, n / 2, column, count, sum);
    table_tree(g, middle, end, leaf + n / 2, n / 2, column, count, right);
    for (int64_t c = 0; c < COLUMNS; c += SYCPU_LANES)
        vf_store(sum + c, vf_add(vf_load(sum + c), vf_load(right + c)));
}

/* First id whose run starts at or after this position of the sorted order. */
static int64_t id_at(const struct table_grad *g, int64_t position)
{
    int64_t low = 0, high = g->V;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (g->start[middle] < position)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void table_task(void *arg, int64_t task, int thread)
{
    const struct table_grad *g = arg;
    int64_t column = task / ID_CHUNKS * COLUMNS, chunk = task % ID_CHUNKS, total = g->start[g->V];
    int64_t count = g->D - column < COLUMNS ? g->D - column : COLUMNS;
    int64_t v = chunk == 0 ? 0 : id_at(g, (total * chunk + ID_CHUNKS - 1) / ID_CHUNKS);
    int64_t end = chunk == ID_CHUNKS - 1 ? g->V : id_at(g, (total * (chunk + 1) + ID_CHUNKS - 1) / ID_CHUNKS);
    int64_t leaves = sycpu_count(&g->call->in[0]) / g->leaf;
    float sum[COLUMNS];
    (void)thread;
    for (; v < end; v++) {
        table_tree(g, g->position + g->start[v], g->position + g->start[v + 1], 0, leaves, column, count,
                   sum);
        memcpy((float *)g->call->out[0].data + v * g->D + column, sum, (size_t)count * sizeof *sum);
    }
}

uint64_t fast_embed_grad_workspace(const struct sy_call *call, int threads)
{
    (void)threads;
    return (uint64_t)(call->out[0].dim[0] + 1 + sycpu_count(&call->in[0])) * sizeof(int64_t);
}

int fast_embed_grad(void *context, const struct sy_call *call)
{
    (void)context;
    const struct sy_attr_leaf *attr = call->attr;
    struct table_grad g = {call,
                           call->workspace,
                           NULL,
                           call->out[0].dim[0],
                           call->out[0].dim[1],
                           attr->leaf * call->in[0].dim[1]};
    g.position = g.start + g.V + 1;
    sort_positions(&g);
    sycpu_parallel(call, (g.D + COLUMNS - 1) / COLUMNS * ID_CHUNKS, table_task, &g);
    return SY_OK;
}

/* ---- caches of decoding ---- */

static int64_t cache_position(const struct sy_call *call)
{
    return ((const int32_t *)call->in[2].data)[0];
}

/* Bytes of one position. */
static size_t position_bytes(const struct sy_tensor *cache)
{
    return (size_t)cache->dim[2] * (fast_is_bf16(cache) ? 2 : 4);
}

static void append_rows(const struct sy_call *call, int64_t first, int64_t end)
{
    size_t bytes = position_bytes(&call->in[0]);
    size_t row = (size_t)call->in[0].dim[1] * bytes, at = (size_t)cache_position(call) * bytes;
    for (int64_t b = first; b < end; b++)
        memcpy((char *)call->out[0].data + (size_t)b * row + at,
               (const char *)call->in[1].data + (size_t)b * bytes, bytes);
}

int fast_cache_append(void *context, const struct sy_call *call)
{
    const struct sy_tensor *cache = &call->in[0];
    (void)context;
    if (call->out[0].data != cache->data)
        memcpy(call->out[0].data, cache->data,
               (size_t)(cache->dim[0] * cache->dim[1]) * position_bytes(cache));
    if (cache_position(call) >= 0 && cache_position(call) < cache->dim[1])
        fast_rows(call, cache->dim[0], cache->dim[2], append_rows);
    return SY_OK;
}

/* A row held elsewhere is replaced by the row itself. */
static void gather_rows(const struct sy_call *call, int64_t first, int64_t end)
{
    const struct sy_tensor *cache = &call->in[0];
    const int32_t *from = call->in[1].data;
    size_t bytes = position_bytes(cache), row = (size_t)cache->dim[1] * bytes;
    int64_t n = cache_position(call) < cache->dim[1] ? cache_position(call) : cache->dim[1];
    for (int64_t b = first; n > 0 && b < end; b++) {
        int64_t source = from[b] - cache->first[0];
        if (source < 0 || source >= cache->dim[0]) source = b;
        memcpy((char *)call->out[0].data + (size_t)b * row, (const char *)cache->data + (size_t)source * row,
               (size_t)n * bytes);
    }
}

int fast_cache_gather(void *context, const struct sy_call *call)
{
    (void)context;
    fast_rows(call, call->in[0].dim[0], call->in[0].dim[1] * call->in[0].dim[2], gather_rows);
    return SY_OK;
}
