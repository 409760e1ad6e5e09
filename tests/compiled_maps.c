/* SPDX-License-Identifier: Apache-2.0 */
/* Which maps, and sums of them, the CPU backend compiles whole: those that update matrices under each named optimizer, with and without
 * weight decay, and those of weights with experts, whose gradients are scaled; with gradients in bfloat16 they must be the same,
 * that input widened as it is read. Without arguments a test: does
 * backends/cpu/compiled_maps.def say the same? With --print: that file. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/map.h"
#include "base/optimizers.h"
#include "train/engine/engine.h"

enum { LEAST_INSTRUCTIONS = 3, LEAST_ELEMENTS = 4096, MOST = 256, TEXT = 8192 };

static struct {
    char text[TEXT]; /* all of it but the numbers that its entry begins and ends with */
    char head[32], of[64];
} map[MOST];
static int n_maps;

static void die(const char *what)
{
    fprintf(stderr, "compiled_maps: %s\n", what);
    exit(1);
}

/* ---- one map as text ---- */

static struct sy_tensor shape_of(const struct syi_tensor *t)
{
    struct sy_tensor shape = {.dtype = t->dtype, .rank = t->rank};
    for (int d = 0; d < SY_MAX_DIMS; d++) shape.dim[d] = d < t->rank ? t->dim[d] : 1;
    return shape;
}

static const char *op_name(int op)
{
    static const char *const name[SY_MAP_COUNT] = {
#define SY_MAP(id, NAME, name, arguments, help) [id] = #NAME,
#include "switchyard/maps.def"
#undef SY_MAP
    };
    return name[op];
}

static const char *kind_name(const struct sy_tensor *in, const struct sy_tensor *out)
{
    int kind = map_kind_in_row(in, map_kind(in, out));
    return kind == MAP_FULL ? "FULL" : kind == MAP_ONE ? "ONE" : kind == MAP_ROW ? "ROW" : "COLUMN";
}

static void put(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(char *text, const char *format, ...)
{
    size_t n = strlen(text);
    va_list args;
    va_start(args, format);
    int more = vsnprintf(text + n, TEXT - n, format, args);
    va_end(args);
    if (more < 0 || n + (size_t)more >= TEXT) die("a map is too long");
}

/* 0: it is none that could be compiled. */
static int describe(const struct syi_program *p, const struct syi_op *op, char text[TEXT])
{
    const struct sy_attr_map *attr = (const void *)(p->attrs + op->attr);
    const struct sy_tensor out = shape_of(&p->tensor[op->op == SY_OP_MAP_SUMS ? op->in[0] : op->out[0]]);
    text[0] = '\0';
    if (attr->rng != 255 || attr->n_instr < LEAST_INSTRUCTIONS || out.rank < 2 ||
        sycpu_count(&out) < LEAST_ELEMENTS)
        return 0;
    for (int i = 0, widened = 0; i < op->n_in; i++) {
        const struct sy_tensor in = shape_of(&p->tensor[op->in[i]]);
        if (in.dtype == SY_BF16 && map_kind(&in, &out) == MAP_FULL && !widened)
            widened = 1;
        else if (in.dtype != SY_F32)
            return 0;
        put(text, "    WHOLE_%s(%d)\n", kind_name(&in, &out), i);
    }
    for (int i = 0; i < attr->n_instr; i++) {
        const struct sy_map_instr *instr = &attr->instr[i];
        int reads = map_arguments[instr->op], c[3] = {instr->a, instr->b, instr->c};
        if (instr->op == SY_MAP_ACTIVATION || instr->op == SY_MAP_ACTIVATION_GRAD) return 0;
        put(text, "    WHOLE_DO%d(%d, %s", reads, op->n_in + i, op_name(instr->op));
        for (int k = 0; k < reads; k++) put(text, ", %d", c[k]);
        put(text, ")\n");
    }
    for (int o = 0; o < op->n_out; o++) {
        const struct sy_tensor y = shape_of(&p->tensor[op->out[o]]);
        int stored = op->op == SY_OP_MAP || attr->stored >> o & 1;
        int narrow = y.dim[y.rank - 1] == out.dim[out.rank - 1];
        if (y.dtype != SY_F32) return 0;
        put(text, "    WHOLE_%s(%d, %d",
            stored   ? "OUT"
            : narrow ? "NARROW"
                     : "BLOCKS",
            o, attr->out_register[o]);
        put(text, "%s)\n",
            stored                   ? ""
            : attr->squares >> o & 1 ? ", SQUARES"
            : attr->maxima >> o & 1  ? ", MAX"
                                     : ", SUM");
    }
    return 1;
}

static void add(const struct syi_program *p, const struct syi_op *op, const char *optimizer)
{
    char text[TEXT];
    if (!describe(p, op, text)) return;
    for (int i = 0; i < n_maps; i++)
        if (!strcmp(map[i].text, text)) return;
    if (n_maps == MOST) die("too many maps");
    const struct sy_attr_map *attr = (const void *)(p->attrs + op->attr);
    snprintf(map[n_maps].head, sizeof map[n_maps].head, "%d, %d, %d", op->n_in, op->n_out, attr->n_instr);
    snprintf(map[n_maps].of, sizeof map[n_maps].of, "%s", optimizer);
    strcpy(map[n_maps++].text, text);
}

/* ---- the programs ---- */

static int record(const struct syi_config *config, const struct syi_mesh *mesh, enum syi_which which,
                  enum syi_stage stage, struct syi_model *model, struct syi_recorded *recorded,
                  struct sy_error *err)
{
    struct syi_shape shape = syi_config_shape(config, which);
    return syi_pipeline(config, mesh, NULL, which, &shape, stage, model, recorded, err);
}

/* which: the update, with or without metrics of the weights. */
static void add_update(const struct syi_config *config, enum syi_which which, const char *optimizer)
{
    struct syi_model model = {0};
    struct syi_recorded grad, update;
    struct syi_mesh mesh;
    struct sy_error err = {0};
    if (syi_mesh_new(&mesh, 1, 1, 1, 1, (int)config->moe.num_experts, &err) ||
        record(config, &mesh, SYI_GRAD_FIRST, SYI_STAGE_RECORD, &model, &grad, &err) ||
        record(config, &mesh, which, SYI_STAGE_FOLD, &model, &update, &err))
        die(err.text);
    for (size_t i = 0; i < update.program->n_ops; i++)
        if (update.program->op[i].op == SY_OP_MAP || update.program->op[i].op == SY_OP_MAP_SUMS)
            add(update.program, &update.program->op[i], optimizer);
    syi_program_free(update.program);
    syi_program_free(grad.program);
    syi_model_free(&model);
}

static void collect(void)
{
    static struct syi_config config;
    if (syi_config_defaults(&config, NULL)) die("no defaults");
    config.model.d_model = 128;
    config.model.d_ff = 256;
    config.moe.num_experts = 4;
    config.train.steps = 10;
    struct syi_optimizer_part *part = &config.optimizer.part[0];
    for (int name = 0; name < SYI_OPTIMIZER_CHAIN; name++)
        for (int decays = 0; decays < 2; decays++) {
            part->name = name;
            part->weight_decay = decays ? 0.01 : 0;
            if (name == SYI_OPTIMIZER_DPSGD || (decays && !syi_optimizer_takes(name, "weight_decay")))
                continue;
            for (int dtype = SYI_DTYPE_FLOAT32; dtype <= SYI_DTYPE_BFLOAT16; dtype++) {
                config.train.gradient_dtype = dtype;
                add_update(&config, SYI_UPDATE, syi_optimizer_info(name)->name);
                add_update(&config, SYI_UPDATE_METRICS, syi_optimizer_info(name)->name);
            }
        }
}

/* ---- the file ---- */

/* What an includer leaves undefined is nothing, and all are taken back at the end. */
static void print(FILE *to)
{
    static const char *const macros[] = {"BEGIN", "FULL", "COLUMN", "ONE",    "ROW",    "DO0", "DO1",
                                         "DO2",   "DO3",  "OUT",    "BLOCKS", "NARROW", "END"};
    fprintf(
        to,
        "/* SPDX-License-Identifier: Apache-2.0 */\n"
        "/* Made by `tests/compiled-maps --print`. Maps that fast_map_whole.c compiles: WHOLE_BEGIN(id, inputs, outputs,\n"
        " * instructions); how each input is read; instructions, WHOLE_DOn(register, OP, n registers); what outputs store, or\n"
        " * gather of blocks wider than a column, or as wide. A macro that is not defined is empty. */\n\n");
    for (size_t i = 0; i < sizeof macros / sizeof *macros; i++)
        fprintf(to, "#ifndef WHOLE_%s\n#    define WHOLE_%s(...)\n#endif\n", macros[i], macros[i]);
    for (int i = 0; i < n_maps; i++)
        fprintf(to, "\n/* %s */\nWHOLE_BEGIN(%d, %s)\n%sWHOLE_END(%d)\n", map[i].of, i, map[i].head,
                map[i].text, i);
    fputc('\n', to);
    for (size_t i = 0; i < sizeof macros / sizeof *macros; i++) fprintf(to, "#undef WHOLE_%s\n", macros[i]);
}

static int differs(void)
{
    const char *top = getenv("abs_top_srcdir");
    char path[4096], *made = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&made, &bytes);
    snprintf(path, sizeof path, "%s/backends/cpu/compiled_maps.def", top ? top : ".");
    FILE *file = fopen(path, "r");
    if (!memory || !file) die("cannot read backends/cpu/compiled_maps.def: is abs_top_srcdir set?");
    print(memory);
    fclose(memory);
    int same = 1;
    for (size_t i = 0; same && i <= bytes; i++)
        same = getc(file) == (i < bytes ? (unsigned char)made[i] : EOF);
    fclose(file);
    free(made);
    return !same;
}

int main(int argc, char **argv)
{
    collect();
    if (argc == 2 && !strcmp(argv[1], "--print")) {
        print(stdout);
        return 0;
    }
    if (n_maps < 10) die("fewer than 10 maps were found");
    if (differs())
        die("the optimizers' maps are others than backends/cpu/compiled_maps.def has: "
            "tests/compiled-maps --print >backends/cpu/compiled_maps.def");
    printf("%d maps\n", n_maps);
    return 0;
}
