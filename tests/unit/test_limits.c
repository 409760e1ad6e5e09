/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes at and beyond what can be: a plan is right or refused with a word, never wrapped around; memory that
 * is not there is refused before it is taken. */
#include "config.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/index.h"
#include "fake_root.h"
#include "passes/passes.h"
#include "passes/place.h"
#include "program/record.h"
#include "train/engine/engine.h"
#include "train/engine/pipeline.h"

/* ---- arithmetic ---- */

Test(limits, sums_and_products_stay_at_the_largest)
{
    const uint64_t most = SYI_TOO_LARGE;
    cr_expect_eq(syi_add_u64(most - 1, 1), most);
    cr_expect_eq(syi_add_u64(most - 1, 0), most - 1);
    cr_expect_eq(syi_add_u64(most, most), most);
    cr_expect_eq(syi_mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 31), UINT64_C(1) << 63);
    cr_expect_eq(syi_mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 32), most);
    cr_expect_eq(syi_mul_u64(most, 0), 0);
    cr_expect_eq(syi_mul_u64(0, most), 0);
    cr_expect_eq(syi_mul_u64(most, 1), most);
    cr_expect_eq(syi_whole_lines(most), syi_whole_lines(most - 5)); /* and not 0 */
    cr_expect_gt(syi_whole_lines(most), most - 128);
}

static struct syi_program *fresh(void)
{
    struct syi_program *p = NULL;
    cr_assert_eq(syi_program_new("test", &p, NULL), SY_OK);
    return p;
}

Test(limits, a_tensor_that_is_too_large_is_refused_by_name)
{
    static const int64_t dims[][3] = {{1 << 20, 1 << 20, 1 << 7}, {INT64_MAX, INT64_MAX, 2}, {1, 0, 7}};
    static const char *const words[] = {
        "tensor layer/kernel [1048576, 1048576, 128] has more than 2^46 elements",
        "tensor layer/kernel [9223372036854775807, 9223372036854775807, 2] has more than 2^46 elements",
        "tensor layer/kernel [1, 0, 7]: an extent is below 1"};
    for (size_t i = 0; i < SYI_COUNT(dims); i++) {
        struct syi_program *p = fresh();
        struct sy_error err = {0};
        cr_expect_eq(syi_tensor_add(p, "layer/kernel", SYI_PARAM, SY_F32, 3, dims[i], NULL), -1);
        cr_expect_eq(syi_program_status(p, &err), SY_EINVAL);
        cr_expect(strstr(err.text, words[i]), "%s", err.text);
        syi_program_free(p);
    }
    struct syi_program *p = fresh();
    struct sy_error err = {0};
    const int64_t largest[2] = {1 << 23, 1 << 23};
    int n = 0;
    while (n < 1 << 13 && syi_tensor_add(p, NULL, SYI_TEMP, SY_F32, 2, largest, NULL) >= 0) n++;
    cr_expect_eq(n, 1 << 12);
    cr_expect_eq(syi_program_status(p, &err), SY_EINVAL);
    cr_expect(strstr(err.text, "the program has more than 2^58 elements"), "%s", err.text);
    syi_program_free(p);
}

/* Each tensor and each program is small enough, but not what they take together. */
Test(limits, segments_that_are_too_large_are_refused)
{
    struct syi_program *p = fresh();
    struct syi_plan plan;
    struct sy_error err = {0};
    const int64_t largest[2] = {1 << 23, 1 << 23};
    for (int i = 0; i < 2200; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        cr_assert_geq(syi_tensor_add(p, name, SYI_PARAM, SY_F64, 2, largest, NULL), 0);
    }
    cr_expect_eq(syi_plan(&p, 1, NULL, NULL, 1, &plan, &err), SY_EINVAL);
    cr_expect(strstr(err.text, "the plan does not end below 2^60 bytes (p"), "%s", err.text);
    syi_program_free(p);
}

/* Ids and choices of experts are numbered in 32 bits. */
Test(limits, more_choices_of_experts_than_numbers_are_refused)
{
    for (int64_t tokens = 1 << 26; tokens <= 1 << 27; tokens *= 2) {
        struct syi_program *p = fresh();
        struct syi_plan plan;
        struct sy_error err = {0};
        const int64_t dim[2] = {tokens, 16};
        cr_assert_geq(syi_tensor_add(p, NULL, SYI_TEMP, SY_I32, 2, dim, NULL), 0);
        cr_expect_eq(syi_plan(&p, 1, NULL, NULL, 1, &plan, &err), tokens == 1 << 27 ? SY_EINVAL : SY_OK);
        if (tokens == 1 << 27) cr_expect(strstr(err.text, "2147483648 token ids or choices"), "%s", err.text);
        syi_program_free(p);
    }
}

/* A plugin may ask for any workspace. */
Test(limits, workspaces_that_are_too_large_are_refused)
{
    static const uint64_t asked[] = {UINT64_MAX, UINT64_C(1) << 61, UINT64_MAX - 62};
    for (size_t i = 0; i < SYI_COUNT(asked); i++)
        for (int reuse = 0; reuse < 2; reuse++) {
            struct syi_program *p = fresh();
            struct syi_plan plan;
            struct sy_error err = {0};
            const int64_t dim = 4;
            int in = syi_tensor_add(p, "in", SYI_INPUT, SY_F32, 1, &dim, NULL);
            syi_output(p, syi_map1(p, SY_MAP_NEG, in, 0), "out");
            uint64_t workspace[1] = {asked[i]}, at[1], *w = workspace, *a = at;
            cr_assert_eq(p->n_ops, 1);
            cr_expect_eq(syi_plan(&p, 1, &w, &a, reuse, &plan, &err), SY_EINVAL);
            cr_expect(strstr(err.text, "temporaries and workspaces"), "%s", err.text);
            syi_program_free(p);
        }
}

/* ---- every key at its largest ---- */

struct attempt {
    const struct syi_config *config;
    const char *what; /* the assignments, for messages */
};

/* Nothing wrapped around: in doubles a tensor is as large as its extents say, and lies within its segment. */
static void check_tensor(const struct attempt *attempt, const struct syi_plan *plan,
                         const struct syi_program *p, int tensor)
{
    const struct syi_tensor *t = &p->tensor[tensor];
    double bytes = (double)syi_dtype_bytes(t->dtype), end = (double)plan->bytes[syi_kind_segment(t->kind)];
    for (int i = 0; i < t->rank; i++) bytes *= (double)t->dim[i];
    if ((double)t->bytes >= bytes && (double)t->offset + bytes <= end) return;
    cr_expect_fail("%s: %s: t%d of %g bytes is planned as %g at %g of %g", attempt->what, p->title, tensor,
                   bytes, (double)t->bytes, (double)t->offset, end);
}

static int plan_rank(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    const struct attempt *attempt = arg;
    struct syi_engine *engine = NULL;
    int status =
        syi_engine_new(attempt->config, rank, SYI_USE_TRAIN | SYI_USE_EVAL | SYI_USE_DECODE, 1, &engine, err);
    if (status) return status;
    const struct syi_plan *plan = syi_session_plan(syi_engine_session(engine));
    for (int which = 0; which < SYI_WHICH_COUNT; which++) {
        const struct syi_program *p = syi_engine_program(engine, which);
        for (size_t i = 0; p && i < p->n_ops; i++) /* what fuse made a register has no place */
            for (int k = 0; k < p->op[i].n_in + p->op[i].n_out; k++) {
                int tensor = k < p->op[i].n_in ? p->op[i].in[k] : p->op[i].out[k - p->op[i].n_in];
                if (tensor >= 0) check_tensor(attempt, plan, p, tensor);
            }
    }
    cr_expect_lt((double)syi_plan_bytes(plan), 9.3e18);
    syi_engine_free(engine);
    return SY_OK;
}

/* A plan, or an error that says something. */
static void attempt(const char *backend, const struct syi_config *config, const char *what)
{
    struct attempt a = {config, what};
    struct sy_error err = {0};
    struct syi_launch launch = {.backend = backend, .comm = "self", .threads = 1, .config = config};
    struct syi_config checked = *config;
    int status = syi_config_validate(&checked, &err);
    if (!status) status = syi_launch_plan(&launch, plan_rank, &a, &err);
    cr_expect(!status || strlen(err.text) > 20, "%s: status %d and \"%s\"", what, status, err.text);
    cr_expect_neq(status, SY_EINTERNAL, "%s: %s", what, err.text);
}

static struct syi_config small_config(void)
{
    struct syi_config config;
    cr_assert_eq(syi_config_defaults(&config, NULL), SY_OK);
    cr_assert_eq(syi_config_set(&config, "moe.num_experts=4", NULL), SY_OK);
    cr_assert_eq(syi_config_set(&config, "moe.num_encoder_sparse_layers=1", NULL), SY_OK);
    return config;
}

/* Sets a key to its largest value divided by `divisor`; 0: it has none, or is no integer. */
static int set_large(struct syi_config *config, const char *name, int64_t divisor, char text[256])
{
    struct syi_key key;
    char reason[SYI_REASON];
    cr_assert_eq(syi_key_parse(name, &key, reason), SY_OK, "%s", reason);
    const char *most = strstr(key.option->range, "..");
    if (key.option->type != SYI_OPTION_INT || !most || !most[2]) return 0;
    snprintf(text, 256, "%s=%lld", name, (long long)(strtoll(most + 2, NULL, 10) / divisor));
    return syi_config_set(config, text, NULL) == SY_OK;
}

/* Thousands of layers are planned by tests/cli/many_layers.sh. */
static int is_slow(const char *key)
{
    return strstr(key, "_layers") != NULL;
}

static size_t try_key(const char *key)
{
    size_t tried = 0;
    for (int64_t divisor = 1; divisor <= 64; divisor *= 64) {
        char text[256];
        struct syi_config config = small_config();
        if (is_slow(key) || !set_large(&config, key, divisor, text)) continue;
        attempt("cpu", &config, text);
        attempt("null", &config, text);
        tried++;
    }
    return tried;
}

Test(limits, every_key_at_its_largest)
{
    size_t n, tried = 0;
    const struct syi_part_kind *kind = syi_config_kinds(&n);
    for (; n; n--, kind++)
        for (size_t i = 0; i < kind->n_options; i++) {
            char key[SYI_KEY];
            syi_key_text(kind, kind->names == SYI_PART_NAMED ? "large" : "", &kind->options[i], key);
            tried += try_key(key);
        }
    cr_expect_gt(tried, 60);
}

/* Keys that sizes are made of, three by three, and with T5X's groups: 2^24 rows of 2^20 positions of 2^20
 * numbers are 2^64. */
Test(limits, large_keys_three_by_three)
{
    static const char *const keys[] = {
        "model.vocab_size",      "model.d_model",          "model.d_ff",
        "model.head_dim",        "model.num_heads",        "model.relpos_num_buckets",
        "moe.num_experts",       "moe.expert_mlp_dim",     "moe.min_expert_capacity",
        "moe.group_rows",        "moe.replicas",           "moe.num_shared_experts",
        "data.max_input_length", "data.max_target_length", "data.batch_size",
        "decode.batch_size",     "decode.beams",
    };
    enum { KEYS = SYI_COUNT(keys) };
    for (size_t n = 0; n < KEYS * KEYS * KEYS; n++) {
        size_t of[3] = {n % KEYS, n / KEYS % KEYS, n / KEYS / KEYS};
        char text[3][256], what[800];
        struct syi_config config = small_config();
        if (of[0] < of[1] || of[1] < of[2]) continue; /* once each; some pairs and single ones too */
        for (int i = 0; i < 3; i++) set_large(&config, keys[of[i]], n % 5 ? 1 : 256, text[i]);
        if (n % 4 == 0) config.run.compat = SYI_COMPAT_T5X;
        snprintf(what, sizeof what, "%s %s %s", text[0], text[1], text[2]);
        attempt(n % 3 ? "null" : "cpu", &config, what);
    }
}

/* One tensor of 2^64 elements and no other that is too large; 52 of the widest layers. */
Test(limits, combinations_that_wrapped_around)
{
    static const char *const cases[][9] = {
        {"moe.num_experts=0", "data.batch_size=16777216", "data.max_input_length=1048575",
         "model.d_model=1048576", "model.num_heads=1", "model.head_dim=1", "model.d_ff=1",
         "decode.batch_size=1", "data.max_target_length=2"},
        {"model.d_model=1048576", "model.d_ff=1048576", "model.num_encoder_layers=52"},
        {"moe.num_experts=65536", "moe.expert_mlp_dim=16777216", "model.d_model=1048576"},
    };
    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        struct syi_config config = small_config();
        for (int k = 0; k < 9 && cases[i][k]; k++)
            cr_assert_eq(syi_config_set(&config, cases[i][k], NULL), SY_OK, "%s", cases[i][k]);
        attempt("null", &config, cases[i][0]);
        attempt("cpu", &config, cases[i][0]);
    }
}

/* ---- finding and placing ---- */

static char names[20000][16];
static size_t compared;

static const char *name_of(const void *owner, uint32_t id)
{
    cr_assert_eq(owner, names);
    compared++;
    return names[id];
}

Test(limits, a_name_is_found_without_looking_at_the_others)
{
    struct syi_index index = {0}, copy;
    for (uint32_t i = 0; i < SYI_COUNT(names); i++) {
        snprintf(names[i], sizeof names[i], "layers_%u", i);
        cr_assert_eq(syi_index_find(&index, name_of, names, names[i]), -1);
        cr_assert_eq(syi_index_add(&index, names[i], i, NULL), SY_OK);
    }
    cr_assert_eq(syi_index_copy(&index, &copy, NULL), SY_OK);
    syi_index_free(&index);
    for (uint32_t i = 0; i < SYI_COUNT(names); i++)
        cr_assert_eq(syi_index_find(&copy, name_of, names, names[i]), i);
    cr_expect_eq(syi_index_find(&copy, name_of, names, "layers_"), -1);
    cr_expect_leq(compared, SYI_COUNT(names) + SYI_COUNT(names) / 100);
    syi_index_free(&copy);
}

Test(limits, copies_of_a_program_have_names_of_their_own)
{
    struct syi_program *p = fresh(), *copy;
    const int64_t dim = 4;
    int a = syi_tensor_add(p, "a", SYI_INPUT, SY_F32, 1, &dim, NULL);
    int later = syi_map1(p, SY_MAP_NEG, a, 0), first = syi_map1(p, SY_MAP_NEG, a, 0);
    syi_output(p, first, "b");
    syi_output(p, later, "b"); /* the lower number counts, whichever is named first */
    cr_expect_eq(syi_program_find(p, "b"), later);
    cr_assert_eq(syi_program_copy(p, &copy, NULL), SY_OK);
    int c = syi_tensor_add(copy, "c", SYI_CARRY, SY_F32, 1, &dim, NULL);
    cr_expect_eq(syi_program_find(copy, "c"), c);
    cr_expect_eq(syi_program_find(copy, "a"), a);
    cr_expect_eq(syi_program_find(p, "c"), -1);
    cr_expect_eq(syi_program_find(p, ""), -1);
    syi_program_free(p);
    cr_expect_eq(syi_program_find(copy, "b"), later);
    syi_program_free(copy);
}

/* Where a block goes beside those placed before, in the order of their offsets. */
static uint64_t plain_first_fit(const struct syi_block **placed, size_t n, const struct syi_block *block)
{
    uint64_t end = 0;
    for (size_t i = 0; i < n; i++) {
        const struct syi_block *other = placed[i];
        if (other->last < block->first || other->first > block->last) continue;
        if (other->offset > end && other->offset - end >= block->bytes) return end;
        if (other->offset + other->bytes > end) end = other->offset + other->bytes;
    }
    return end;
}

static int by_size(const void *a, const void *b)
{
    const struct syi_block *x = *(struct syi_block *const *)a, *y = *(struct syi_block *const *)b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return (x > y) - (x < y);
}

static int by_offset(const void *a, const void *b)
{
    const struct syi_block *x = *(struct syi_block *const *)a, *y = *(struct syi_block *const *)b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* The tree of place.c finds the holes that looking at every block finds. */
Test(limits, blocks_go_where_a_plain_search_puts_them)
{
    enum { BLOCKS = 300, OPS = 400 };
    static struct syi_block block[BLOCKS];
    struct syi_block *order[BLOCKS];
    srand(1);
    for (int round = 0; round < 20; round++) {
        uint64_t end, highest = 0;
        for (int i = 0; i < BLOCKS; i++) {
            size_t first = (size_t)rand() % OPS, life = (size_t)rand() % (i % 3 ? 6 : OPS);
            size_t last = i % 7 ? first + life : OPS - 1 - first;
            if (last < first) first = last;
            if (last >= OPS) last = OPS - 1;
            block[i] = (struct syi_block){
                .bytes = (uint64_t)(1 + rand() % (round < 10 ? 40 : 3)) * 64, .first = first, .last = last};
            order[i] = &block[i];
        }
        cr_assert_eq(syi_place_blocks(block, BLOCKS, OPS, &end, NULL), SY_OK);
        qsort(order, BLOCKS, sizeof *order, by_size);
        for (size_t i = 0; i < BLOCKS; i++) {
            const struct syi_block *placed[BLOCKS];
            memcpy(placed, order, i * sizeof *order);
            qsort(placed, i, sizeof *placed, by_offset);
            cr_assert_eq(order[i]->offset, plain_first_fit(placed, i, order[i]), "round %d, block %zu", round,
                         i);
            if (order[i]->offset + order[i]->bytes > highest) highest = order[i]->offset + order[i]->bytes;
        }
        cr_expect_eq(end, highest);
    }
}

/* ---- memory that is not there ---- */

TestSuite(memory, .init = make_root, .fini = remove_root);

Test(memory, of_a_system_without_limits)
{
    cr_expect_eq(syi_memory_free(root), 0); /* unknown */
    put("proc/meminfo", "MemTotal:       2000 kB\nMemFree:          10 kB\nMemAvailable:    1000 kB\n");
    cr_expect_eq(syi_memory_free(root), 1000 * 1024);
    put("proc/self/cgroup", "0::/a\n");
    put("sys/fs/cgroup/a/memory.max", "max\n");
    put("sys/fs/cgroup/a/memory.current", "5\n");
    cr_expect_eq(syi_memory_free(root), 1000 * 1024);
}

Test(memory, of_groups_of_version_2)
{
    put("proc/meminfo", "MemAvailable:    1000 kB\n");
    put("proc/self/cgroup", "0::/a/b\n");
    put("sys/fs/cgroup/a/memory.max", "600000\n");
    put("sys/fs/cgroup/a/memory.current", "500000\n");
    put("sys/fs/cgroup/a/memory.stat", "anon 1\nfile 260000\nactive_file 50000\ninactive_file 200000\n");
    put("sys/fs/cgroup/a/b/memory.max", "900000\n");
    cr_expect_eq(syi_memory_free(root), 350000); /* files are given back */
    put("sys/fs/cgroup/a/b/memory.max", "300000\n");
    cr_expect_eq(syi_memory_free(root), 300000);
    put("sys/fs/cgroup/a/b/memory.current", "300001\n");
    cr_expect_eq(syi_memory_free(root), 1); /* none, which is known */
}

Test(memory, of_groups_of_version_1)
{
    put("proc/meminfo", "MemAvailable:    1000 kB\n");
    put("proc/self/cgroup", "9:name=systemd:/\n3:cpuacct,cpu:/x\n2:memory:/job\n");
    put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "700000\n");
    put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "100000\n");
    put("sys/fs/cgroup/memory/job/memory.stat",
        "inactive_file 1\ntotal_inactive_file 40000\ntotal_active_file 0\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    cr_expect_eq(syi_memory_free(root), 640000);
}

struct lack {
    struct syi_config config;
    uint64_t memory; /* that the rank is said to have; 0: that of the plan, below */
    uint64_t planned;
    int warned;
};

static void note_warning(void *arg, enum sy_log_level level, const char *line)
{
    ((struct lack *)arg)->warned += level == SY_LOG_WARN && strstr(line, "that are free here for it") != NULL;
}

static int open_rank(void *arg, const struct syi_rank *given, struct sy_error *err)
{
    struct lack *lack = arg;
    struct syi_rank rank = *given;
    struct syi_engine *engine = NULL;
    cr_expect(given->memory > 0, "nothing is known of this host's memory");
    rank.memory = lack->memory;
    int status = syi_engine_new(&lack->config, &rank, SYI_USE_TRAIN, 0, &engine, err);
    if (!status) lack->planned = syi_plan_bytes(syi_session_plan(syi_engine_session(engine)));
    if (!status) syi_engine_free(engine);
    return status;
}

static int open_with(struct lack *lack, uint64_t memory, struct sy_error *err)
{
    struct syi_launch launch = {.backend = "null", .comm = "self", .threads = 1, .config = &lack->config};
    lack->memory = memory;
    lack->warned = 0;
    sy_log_set(note_warning, lack);
    int status = syi_launch_run(&launch, open_rank, lack, err);
    sy_log_set(NULL, NULL);
    return status;
}

Test(limits, a_plan_larger_than_the_memory_is_told_before)
{
#if !defined(__linux__)
    cr_skip_test("nothing is known of free memory here");
#endif
    struct lack lack = {.config = small_config()};
    struct sy_error err = {0};
    cr_assert_eq(open_with(&lack, 0, &err), SY_OK, "%s", err.text);
    uint64_t bytes = lack.planned;
    cr_expect_eq(lack.warned, 0);
    cr_expect_eq(open_with(&lack, 2 * bytes, &err), SY_OK);
    cr_expect_eq(lack.warned, 0);
    cr_expect_eq(open_with(&lack, bytes, &err), SY_OK);
    cr_expect_eq(lack.warned, 1);
    cr_expect_eq(open_with(&lack, bytes - 1, &err), SY_ENOMEM);
    static const char *const words[] = {
        "memory.budget", "data.batch_size",      "train.microbatches",      "more ranks",
        "mesh.zero",     "memory.check = false", "are free here for a rank"};
    for (size_t i = 0; i < SYI_COUNT(words); i++) cr_expect(strstr(err.text, words[i]), "%s", err.text);
    cr_assert_eq(syi_config_set(&lack.config, "memory.check=false", NULL), SY_OK);
    err = (struct sy_error){0};
    cr_expect_eq(open_with(&lack, bytes - 1, &err), SY_OK, "%s", err.text);
    cr_expect_eq(lack.warned, 0);
}

static int share_memory(void *arg, const struct syi_rank *rank, struct sy_error *err)
{
    (void)err;
    ((uint64_t *)arg)[rank->rank] = rank->memory;
    return SY_OK;
}

Test(limits, ranks_of_a_process_share_its_memory)
{
    uint64_t memory[4] = {0}, all = syi_memory_free("");
    struct syi_config config = small_config();
    struct syi_launch launch = {
        .backend = "null", .comm = "thread", .ranks = 4, .threads = 1, .config = &config};
    cr_assert_eq(syi_launch_run(&launch, share_memory, memory, NULL), SY_OK);
    for (int i = 1; i < 4; i++) cr_expect_eq(memory[i], memory[0]);
    cr_expect(4 * memory[0] >= all / 2 && 4 * memory[0] / 2 <= all); /* others take and give back meanwhile */
}
