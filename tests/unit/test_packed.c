/* SPDX-License-Identifier: Apache-2.0 */
/* Packed models through the library: the facts and answers of the run, a code for each thing that is wrong, and files whose
 * checksums are right but whose tensors are not those of a packed model. */
#include "config.h"

#include <sys/stat.h>

#include "base/packed.h"
#include "import/pack.h"
#include "small_run.h"

static struct small_run run;
static char packed[64], changed[64];

static void begin(void)
{
    struct sy_error err = {0};
    small_run_make(&run, 10);
    snprintf(packed, sizeof packed, "%s/model.sy", run.folder);
    snprintf(changed, sizeof changed, "%s/changed.sy", run.folder);
    struct syi_pack pack = {.run = run.dir, .step = -1, .weights = SYI_SAFETENSORS_I8};
    cr_assert_eq(syi_pack_run(&pack, packed, &err), SY_OK, "%s", err.text);
}

static void end(void)
{
    unlink(packed);
    unlink(changed);
    small_run_remove(&run);
}

TestSuite(packed, .init = begin, .fini = end);

static void expect_refused(const char *path, const char *checkpoint, int code, const char *words)
{
    struct sy_open_options options = {.bytes = sizeof options, .checkpoint = checkpoint};
    struct sy_error err = {0};
    struct sy_model *model;
    cr_expect_eq(sy_model_open(path, &options, &model, &err), code, "%s", err.text);
    cr_expect_null(model);
    cr_expect(strstr(err.text, words), "\"%s\" lacks \"%s\"", err.text, words);
}

Test(packed, has_the_facts_of_its_run)
{
    struct sy_model *one = open_model(run.dir, NULL), *other = open_model(packed, NULL);
    struct sy_model_facts a = {.bytes = sizeof a}, b = {.bytes = sizeof b};
    cr_assert_eq(sy_model_facts(one, &a, NULL), SY_OK);
    cr_assert_eq(sy_model_facts(other, &b, NULL), SY_OK);
    cr_expect_arr_eq(&a, &b, sizeof a);
    cr_expect_eq(b.step, 10);
    sy_model_close(one);
    sy_model_close(other);
}

Test(packed, refuses_another_checkpoint)
{
    expect_refused(packed, "best", SY_ENOENT, "packed model of step 10");
    expect_refused(packed, "9", SY_ENOENT, "packed model of step 10");
}

static void write_beginning(const char *text, size_t bytes)
{
    FILE *file = fopen(changed, "w");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(text, 1, bytes, file), bytes);
    cr_assert_eq(fclose(file), 0);
}

/* Files that do not even begin as packed models do. */
Test(packed, refuses_other_files)
{
    expect_refused(run.file, NULL, SY_EFORMAT, "is no packed model");
    write_beginning("", 0);
    expect_refused(changed, NULL, SY_EFORMAT, "it is empty, cut short or damaged");
    write_beginning("\200\3\0\0\0\0\0\0{\"__metadata__\"", 24);
    expect_refused(changed, NULL, SY_EFORMAT, "cut short");
    cr_assert_eq(chmod(changed, 0), 0);
    if (access(changed, R_OK)) expect_refused(changed, NULL, SY_EIO, "Permission denied"); /* not of root */
}

/* What one test does to the list of tensors; *n tensors stay. */
typedef void (*change_fn)(struct syi_safetensors_tensor *list, size_t *n);

static size_t find(const struct syi_safetensors_tensor *list, size_t n, const char *part)
{
    size_t i = 0;
    while (i < n && !strstr(list[i].name, part)) i++;
    cr_assert_lt(i, n, "no tensor %s", part);
    return i;
}

static void leave_out(struct syi_safetensors_tensor *list, size_t *n, const char *part)
{
    size_t i = find(list, *n, part);
    memmove(list + i, list + i + 1, (--*n - i) * sizeof *list);
}

static void no_scales(struct syi_safetensors_tensor *list, size_t *n)
{
    leave_out(list, n, "query/kernel.scales");
}

static void few_scales(struct syi_safetensors_tensor *list, size_t *n)
{
    list[find(list, *n, "query/kernel.scales")].dims[0] /= 2;
}

static void narrow_scales(struct syi_safetensors_tensor *list, size_t *n)
{
    list[find(list, *n, "query/kernel.scales")].dtype = SYI_SAFETENSORS_BF16;
}

static void int8_norm(struct syi_safetensors_tensor *list, size_t *n)
{
    list[find(list, *n, "layer_norm/scale")].dtype = SYI_SAFETENSORS_I8;
}

static void no_weights(struct syi_safetensors_tensor *list, size_t *n)
{
    leave_out(list, n, "query/kernel");
}

static void long_kernel(struct syi_safetensors_tensor *list, size_t *n)
{
    list[find(list, *n, "query/kernel")].dims[0] *= 2;
}

static void no_config(struct syi_safetensors_tensor *list, size_t *n)
{
    leave_out(list, n, SYI_PACKED_CONFIG);
}

static void few_sums(struct syi_safetensors_tensor *list, size_t *n)
{
    list[find(list, *n, SYI_PACKED_CHECKSUMS)].dims[0]--;
}

/* Data of the old file as far as there are some, then zeros; every checksum is right. */
static void write_changed(const struct syi_safetensors *from, struct syi_safetensors *to)
{
    const struct syi_safetensors_tensor *sums = syi_safetensors_find(to, SYI_PACKED_CHECKSUMS);
    uint32_t *sum = calloc(to->n_tensors, sizeof *sum);
    cr_assert_eq(syi_safetensors_create(to, changed, NULL), SY_OK);
    for (size_t i = 0; i < to->n_tensors; i++) {
        const struct syi_safetensors_tensor *old = syi_safetensors_find(from, to->tensors[i].name);
        size_t bytes = (size_t)to->tensors[i].bytes;
        char *data = calloc(bytes + 1, 1);
        cr_assert_eq(syi_safetensors_read(from, old, 0, data, bytes < old->bytes ? bytes : old->bytes, NULL),
                     SY_OK);
        sum[i] = syi_crc32c(0, data, bytes);
        if (&to->tensors[i] != sums)
            cr_assert_eq(syi_safetensors_write(to, &to->tensors[i], 0, data, bytes, NULL), SY_OK);
        free(data);
    }
    sum[sums - to->tensors] = syi_packed_header_sum(to);
    cr_assert_eq(syi_safetensors_write(to, sums, 0, sum, (size_t)sums->bytes, NULL), SY_OK);
    free(sum);
}

/* keep_sums: 0: the checksums fit the number of tensors. */
static void make_changed(change_fn change, int keep_sums)
{
    const struct syi_safetensors_pair metadata[] = {
        {"format", SYI_PACKED_FORMAT},
        {"step", "10"},
        {"weights_sha256", "0123456789012345678901234567890123456789012345678901234567890123"}};
    struct syi_safetensors from, to;
    cr_assert_eq(syi_safetensors_open(&from, packed, NULL), SY_OK);
    size_t n = from.n_tensors;
    struct syi_safetensors_tensor *list = malloc(n * sizeof *list);
    memcpy(list, from.tensors, n * sizeof *list);
    if (change) change(list, &n);
    if (!keep_sums) list[find(list, n, SYI_PACKED_CHECKSUMS)].dims[0] = (int64_t)n;
    cr_assert_eq(syi_safetensors_plan(&to, list, n, metadata, 3, NULL), SY_OK);
    write_changed(&from, &to);
    syi_safetensors_close(&from);
    syi_safetensors_close(&to);
    free(list);
}

Test(packed, refuses_other_tensors_with_right_checksums)
{
    static const struct {
        change_fn change;
        int keep_sums, code;
        const char *words;
    } cases[] = {
        {no_scales, 0, SY_EFORMAT, "is int8 without a scale for each channel"},
        {few_scales, 0, SY_EFORMAT, "is int8 without a scale for each channel"},
        {narrow_scales, 0, SY_EFORMAT, "is int8 without a scale for each channel"},
        {int8_norm, 0, SY_EFORMAT, "is int8 without a scale for each channel"},
        {no_weights, 0, SY_EMISMATCH, "it lacks target/"},
        {long_kernel, 0, SY_EMISMATCH, "has shape"},
        {no_config, 0, SY_EFORMAT, "has no run.conf"},
        {few_sums, 1, SY_EFORMAT, "has no checksums"},
    };
    make_changed(NULL, 0);
    sy_model_close(open_model(changed, NULL)); /* what is not changed is taken */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        make_changed(cases[i].change, cases[i].keep_sums);
        expect_refused(changed, NULL, cases[i].code, cases[i].words);
    }
}
