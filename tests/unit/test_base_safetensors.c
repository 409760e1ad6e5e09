/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors: hostile headers, reading, planning, writing blocks in place from several handles, hashes. */
#include "config.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/safetensors.h"

static char path[64];

static void make_path(void)
{
    strcpy(path, "/tmp/switchyard-test-XXXXXX");
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
}

static void remove_path(void)
{
    unlink(path);
}

TestSuite(safetensors, .init = make_path, .fini = remove_path);

/* A file of a header length, a header and zero data; length < 0 takes the header's own. */
static void write_file(int64_t length, const char *header, size_t data_bytes)
{
    struct syi_text out = {0};
    uint64_t claimed = length < 0 ? strlen(header) : (uint64_t)length;
    for (int i = 0; i < 8; i++) syi_text_append(&out, &(char){(char)(claimed >> (8 * i) & 0xff)}, 1);
    syi_text_puts(&out, header);
    for (size_t i = 0; i < data_bytes; i++) syi_text_append(&out, "\0", 1);
    cr_assert_eq(syi_file_write(path, out.data, out.length, NULL), SY_OK);
    syi_text_free(&out);
}

static void expect_refused(const char *wanted)
{
    struct syi_safetensors file;
    struct sy_error err = {0};
    cr_expect_eq(syi_safetensors_open(&file, path, &err), SY_EFORMAT, "accepted, wanted: %s", wanted);
    cr_expect(strstr(err.text, wanted), "%s: wanted: %s", err.text, wanted);
    cr_expect(strstr(err.text, path), "%s: no file name", err.text);
    cr_expect_eq(file.fd, -1);
    syi_safetensors_close(&file);
}

#define TENSOR(name, dtype, shape, offsets)                                                                  \
    "\"" name "\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}"

Test(safetensors, refuses_hostile_files)
{
    static const struct {
        const char *header, *wanted;
        size_t data_bytes;
    } cases[] = {
        {"{" TENSOR("w", "\"F32\"", "[2]", "[0,16]") "}", "tensor w ends at byte 16", 8},
        {"{" TENSOR("w", "\"F32\"", "[2]", "[0,4]") "}", "its shape needs 8 bytes, its offsets give 4", 8},
        {"{" TENSOR("w", "\"F32\"", "[2]", "[8,0]") "}", "tensor w: \"data_offsets\" are no ascending pair",
         8},
        {"{" TENSOR("w", "\"F32\"", "[2]", "[-8,0]") "}", "tensor w: \"data_offsets\" are no ascending pair",
         8},
        {"{" TENSOR("w", "\"F32\"", "[2]", "[0]") "}", "tensor w: \"data_offsets\" is missing or no pair", 8},
        {"{" TENSOR("w", "\"F32\"", "[2]", "[0,8.0]") "}", "tensor w: \"data_offsets\" are no ascending pair",
         8},
        {"{" TENSOR("w", "\"F32\"", "[2]", "[0,99999999999999999999]") "}", "no ascending pair", 8},
        {"{" TENSOR("w", "\"F33\"", "[2]", "[0,8]") "}", "tensor w: unknown dtype F33", 8},
        {"{" TENSOR("w", "7", "[2]", "[0,8]") "}", "tensor w: \"dtype\" is missing", 8},
        {"{" TENSOR("w", "\"F32\"", "[-2]", "[0,8]") "}", "tensor w: a dimension is no whole number", 8},
        {"{" TENSOR("w", "\"F32\"", "[2.0]", "[0,8]") "}", "tensor w: a dimension is no whole number", 8},
        {"{" TENSOR("w", "\"F32\"", "2", "[0,8]") "}", "tensor w: \"shape\" is missing or no array", 8},
        {"{" TENSOR("w", "\"F32\"", "[4294967296,4294967296]", "[0,8]") "}",
         "more elements than a file can hold", 8},
        {"{" TENSOR("w", "\"F32\"", "[4611686018427387904]", "[0,0]") "}",
         "more elements than a file can hold", 0},
        {"{" TENSOR("w", "\"U8\"", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", "tensor w: more than 8 dimensions",
         1},
        {"{" TENSOR("a", "\"F32\"", "[2]", "[0,8]") "," TENSOR("b", "\"F32\"", "[2]", "[4,12]") "}",
         "overlap", 12},
        {"{" TENSOR("a", "\"F32\"", "[2]", "[0,8]") "," TENSOR("b", "\"F32\"", "[2]", "[12,20]") "}",
         "tensor b: there is a hole", 20},
        {"{" TENSOR("a", "\"F32\"", "[2]", "[4,12]") "}", "tensor a: there is a hole", 12},
        {"{" TENSOR("a", "\"F32\"", "[2]", "[0,8]") "}", "4 bytes of data belong to no tensor", 12},
        {"{" TENSOR("a", "\"F32\"", "[1]", "[0,4]") "," TENSOR("a", "\"F32\"", "[1]", "[4,8]") "}",
         "tensor a: the name is given twice", 8},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", "given twice", 0},
        {"{\"__metadata__\":{\"a\":1}}", "metadata a is no string", 0},
        {"{\"__metadata__\":[]}", "\"__metadata__\" is no object", 0},
        {"{\"w\":[]}", "tensor w: its description is no object", 0},
        {"[]", "the header is no object", 0},
        {"{\"w\":", "malformed JSON at byte 5", 0},
        {"", "malformed JSON at byte 0", 0},
    };
    for (size_t i = 0; i < SYI_COUNT(cases); i++) {
        write_file(-1, cases[i].header, cases[i].data_bytes);
        expect_refused(cases[i].wanted);
    }
}

Test(safetensors, refuses_wrong_header_lengths)
{
    write_file(3, "{}", 0);
    expect_refused("claims a header of 3 bytes");
    write_file(INT64_MAX, "{}", 0);
    expect_refused("claims a header of 9223372036854775807 bytes");
    cr_assert_eq(syi_file_write(path, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, NULL), SY_OK);
    expect_refused("claims a header of 18446744073709551615 bytes");
    write_file(100000001, "{}", 0);
    cr_assert_eq(truncate(path, 200000000), 0); /* sparse: the header would fit the file */
    expect_refused("headers of up to 100 MB");
    cr_assert_eq(syi_file_write(path, "1234567", 7, NULL), SY_OK);
    expect_refused("fewer than 8 bytes");
}

Test(safetensors, refuses_what_is_no_file)
{
    struct syi_safetensors file;
    struct sy_error err = {0};
    cr_assert_eq(syi_safetensors_open(&file, "/tmp", &err), SY_EFORMAT);
    cr_assert_str_eq(err.text, "/tmp is no regular file");
    memset(&err, 0, sizeof(err));
    cr_assert_eq(syi_safetensors_open(&file, "/tmp/switchyard-test-none", &err), SY_ENOENT);
    cr_assert(strstr(err.text, "/tmp/switchyard-test-none"));
}

/* One changed byte anywhere in a header ends in a table or an error. */
Test(safetensors, survives_damage)
{
    static const char good[] =
        "{" TENSOR("a", "\"BF16\"", "[2,2]", "[0,8]") "," TENSOR("b", "\"U8\"", "[]", "[8,9]") "}  ";
    char text[sizeof(good)];
    static const char bytes[] = "0129-.,:[]{}\"\\ e\x80";
    for (size_t i = 0; i + 1 < sizeof(good); i++)
        for (size_t c = 0; c + 1 < sizeof(bytes); c++) {
            struct syi_safetensors file;
            memcpy(text, good, sizeof(good));
            text[i] = bytes[c];
            file = (struct syi_safetensors){.fd = -1, .path = syi_strdup("test", NULL), .data_bytes = 9};
            if (syi_safetensors_parse_header(&file, text, sizeof(good) - 1, NULL) == SY_OK)
                cr_expect_leq(file.n_tensors, 2);
            syi_safetensors_close(&file);
        }
}

Test(safetensors, reads_scalars_empty_tensors_and_metadata)
{
    struct syi_safetensors file;
    struct sy_error err = {0};
    write_file(-1,
               "{\"__metadata__\":{\"kind\":\"test\"}," TENSOR("s", "\"I64\"", "[]", "[0,8]") "," TENSOR(
                   "e", "\"F32\"", "[3,0]", "[8,8]") "," TENSOR("b", "\"U8\"", "[3]", "[8,11]") "}   ",
               11);
    cr_assert_eq(syi_safetensors_open(&file, path, &err), SY_OK, "%s", err.text);
    cr_assert_eq(file.n_tensors, 3);
    cr_assert_str_eq(file.tensors[0].name, "b");
    const struct syi_safetensors_tensor *s = syi_safetensors_find(&file, "s"),
                                        *e = syi_safetensors_find(&file, "e");
    cr_assert(s && s->rank == 0 && s->bytes == 8 && s->dtype == SYI_SAFETENSORS_I64);
    cr_assert(e && e->rank == 2 && e->bytes == 0);
    cr_assert_null(syi_safetensors_find(&file, "none"));
    cr_assert_str_eq(syi_safetensors_metadata(&file, "kind"), "test");
    cr_assert_null(syi_safetensors_metadata(&file, "none"));
    char data[8];
    cr_assert_eq(syi_safetensors_read(&file, s, 0, data, 8, &err), SY_OK);
    cr_assert_eq(syi_safetensors_read_block(&file, s, NULL, NULL, data, &err), SY_OK);
    cr_assert_eq(syi_safetensors_read_block(&file, e, (int64_t[]){1, 0}, (int64_t[]){2, 0}, data, &err),
                 SY_OK);
    cr_assert_eq(syi_safetensors_read(&file, s, 4, data, 8, &err), SY_EINVAL);
    cr_assert(strstr(err.text, "outside tensor s"));
    cr_assert_eq(truncate(path, 200), 0);
    struct sy_error cut = {0};
    cr_assert_eq(truncate(path, (off_t)file.data_start), 0);
    cr_assert_eq(syi_safetensors_read(&file, s, 0, data, 8, &cut), SY_EFORMAT);
    cr_assert(strstr(cut.text, "cut short"));
    syi_safetensors_close(&file);
    syi_safetensors_close(&file);
}

static const struct syi_safetensors_tensor planned[] = {
    {.name = "z/bytes", .dtype = SYI_SAFETENSORS_U8, .rank = 1, .dims = {3}},
    {.name = "a/cube", .dtype = SYI_SAFETENSORS_I32, .rank = 3, .dims = {4, 6, 5}},
    {.name = "m/\"odd\"\n", .dtype = SYI_SAFETENSORS_F64, .rank = 0},
};

static void plan(struct syi_safetensors *file)
{
    static const struct syi_safetensors_pair metadata[] = {{"step", "20"}, {"format", "test"}};
    struct sy_error err = {0};
    cr_assert_eq(syi_safetensors_plan(file, planned, 3, metadata, 2, &err), SY_OK, "%s", err.text);
}

Test(safetensors, plan_sorts_and_aligns)
{
    struct syi_safetensors file;
    plan(&file);
    cr_assert_eq(file.n_tensors, 3);
    cr_assert_str_eq(file.tensors[0].name, "a/cube");
    cr_assert_str_eq(file.tensors[1].name, "m/\"odd\"\n");
    cr_assert_eq(file.tensors[1].offset, 480);
    cr_assert_eq(file.tensors[2].offset, 488);
    cr_assert_eq(file.data_bytes, 491);
    cr_assert_eq(file.data_start % 8, 0);
    cr_assert_str_eq(syi_safetensors_metadata(&file, "step"), "20");
    syi_safetensors_close(&file);
}

/* Two handles, as of two ranks, write the halves of each dimension in turn; both leave the same file as one
 * write. */
Test(safetensors, blocks_meet_in_one_file)
{
    int32_t cube[4][6][5], back[4][6][5], part[4 * 6 * 5];
    for (int i = 0; i < 120; i++) (&cube[0][0][0])[i] = i * 7 - 3;
    for (int split = 0; split < 3; split++) {
        struct syi_safetensors rank[2], file;
        struct sy_error err = {0};
        plan(&rank[0]);
        plan(&rank[1]);
        cr_assert_eq(syi_safetensors_create(&rank[0], path, &err), SY_OK, "%s", err.text);
        cr_assert_eq(syi_safetensors_attach(&rank[1], path, &err), SY_OK, "%s", err.text);
        for (int r = 0; r < 2; r++) {
            int64_t start[3] = {0, 0, 0}, extent[3] = {4, 6, 5};
            int64_t half = extent[split] / 2;
            start[split] = r ? half : 0;
            extent[split] = r ? extent[split] - half : half;
            int n = 0;
            for (int64_t i = start[0]; i < start[0] + extent[0]; i++)
                for (int64_t j = start[1]; j < start[1] + extent[1]; j++)
                    for (int64_t k = start[2]; k < start[2] + extent[2]; k++) part[n++] = cube[i][j][k];
            const struct syi_safetensors_tensor *tensor = syi_safetensors_find(&rank[r], "a/cube");
            cr_assert_eq(syi_safetensors_write_block(&rank[r], tensor, start, extent, part, &err), SY_OK,
                         "%s", err.text);
            cr_assert_eq(syi_safetensors_finish(&rank[r], &err), SY_OK);
        }
        cr_assert_eq(
            syi_safetensors_write(&rank[1], syi_safetensors_find(&rank[1], "z/bytes"), 1, "xy", 2, &err),
            SY_OK);
        syi_safetensors_close(&rank[0]);
        syi_safetensors_close(&rank[1]);
        cr_assert_eq(syi_safetensors_open(&file, path, &err), SY_OK, "%s", err.text);
        const struct syi_safetensors_tensor *tensor = syi_safetensors_find(&file, "a/cube");
        cr_assert_eq(syi_safetensors_read(&file, tensor, 0, back, sizeof(back), &err), SY_OK);
        cr_assert_eq(memcmp(back, cube, sizeof(cube)), 0);
        int32_t block[2 * 2 * 2];
        cr_assert_eq(syi_safetensors_read_block(&file, tensor, (int64_t[]){2, 4, 1}, (int64_t[]){2, 2, 2},
                                                block, &err),
                     SY_OK);
        cr_assert(block[0] == cube[2][4][1] && block[3] == cube[2][5][2] && block[7] == cube[3][5][2]);
        cr_assert_eq(syi_safetensors_read_block(&file, tensor, (int64_t[]){2, 4, 1}, (int64_t[]){3, 2, 2},
                                                block, &err),
                     SY_EINVAL);
        syi_safetensors_close(&file);
    }
}

Test(safetensors, hashes_are_of_the_data_and_of_all_before_them)
{
    struct syi_safetensors file;
    char data[65], header[65], *text;
    size_t bytes;
    plan(&file);
    cr_assert_eq(syi_safetensors_create(&file, path, NULL), SY_OK);
    uint32_t sums[8];
    cr_assert_leq(file.n_tensors, SYI_COUNT(sums));
    cr_assert_eq(syi_safetensors_hash(&file, header, sums, NULL), SY_OK);
    cr_assert_eq(syi_safetensors_hash(&file, data, NULL, NULL), SY_OK);
    cr_expect_str_eq(header, data);
    cr_assert_eq(syi_safetensors_hash_header(&file, header, NULL), SY_OK);
    cr_assert_eq(syi_file_read(path, &text, &bytes, NULL), SY_OK);
    cr_assert_eq(bytes, file.data_start + file.data_bytes);
    cr_expect_str_eq(data, syi_file_identify(text + file.data_start, file.data_bytes).sha256);
    cr_expect_str_eq(header, syi_file_identify(text, file.data_start).sha256);
    for (size_t i = 0; i < file.n_tensors; i++)
        cr_expect_eq(sums[i], syi_crc32c(0, text + file.data_start + file.tensors[i].offset,
                                         (size_t)file.tensors[i].bytes));
    syi_free(text);
    syi_safetensors_close(&file);
}

/* A writer, and one that hashes behind it, each with the file opened for itself. */
struct behind {
    struct syi_safetensors file;
    char hex[65];
    int status;
};

static void hash_behind(void *arg)
{
    struct behind *b = arg;
    b->status = syi_safetensors_hash(&b->file, b->hex, NULL, NULL);
}

/* Four MiB and a few bytes, written piece by piece up to piece `last`; the hash behind the writing. */
static void hash_while_written(int last, char hex[65])
{
    enum { PIECE = 1 << 20, BYTES = 4 * PIECE + 5 };
    static unsigned char piece[PIECE];
    struct syi_safetensors_tensor tensor = {
        .name = "x", .dtype = SYI_SAFETENSORS_U8, .rank = 1, .dims = {BYTES}};
    struct syi_gate written = {0};
    struct syi_safetensors file;
    struct syi_worker *worker;
    struct behind b = {0};
    syi_gate_init(&written);
    cr_assert_eq(syi_safetensors_plan(&file, &tensor, 1, NULL, 0, NULL), SY_OK);
    cr_assert_eq(syi_safetensors_create(&file, path, NULL), SY_OK);
    cr_assert_eq(syi_safetensors_open(&b.file, path, NULL), SY_OK);
    file.written = b.file.written = &written;
    cr_assert_eq(syi_worker_new("behind", &worker, NULL), SY_OK);
    syi_worker_start(worker, hash_behind, &b);
    for (int i = 0; i <= last; i++) {
        size_t n = i < 4 ? PIECE : 5;
        memset(piece, 'a' + i, n);
        usleep(2000); /* it waits, now and then at least */
        cr_assert_eq(syi_safetensors_write(&file, &file.tensors[0], (uint64_t)i * PIECE, piece, n, NULL),
                     SY_OK);
        syi_safetensors_wrote(&file, (uint64_t)i * PIECE + n);
    }
    syi_safetensors_wrote(&file, UINT64_MAX);
    syi_worker_free(worker);
    cr_assert_eq(b.status, SY_OK);
    strcpy(hex, b.hex);
    syi_safetensors_close(&b.file);
    syi_safetensors_close(&file);
    syi_gate_destroy(&written);
}

Test(safetensors, a_file_is_hashed_behind_its_writer)
{
    struct syi_safetensors file;
    char behind[65], after[65];
    for (int last = 4; last >= 1; last -= 3) { /* 1: the writer stops early, and the rest are zeros */
        hash_while_written(last, behind);
        cr_assert_eq(syi_safetensors_open(&file, path, NULL), SY_OK);
        cr_assert_eq(syi_safetensors_hash(&file, after, NULL, NULL), SY_OK);
        cr_expect_str_eq(behind, after);
        syi_safetensors_close(&file);
    }
}

Test(safetensors, refuses_bad_plans_and_wrong_files)
{
    struct syi_safetensors file;
    struct sy_error err = {0};
    struct syi_safetensors_tensor twice[] = {planned[0], planned[0]};
    struct syi_safetensors_tensor huge[] = {
        {.name = "h", .dtype = SYI_SAFETENSORS_F64, .rank = 2, .dims = {INT64_MAX, 2}}};
    cr_assert_eq(syi_safetensors_plan(&file, twice, 2, NULL, 0, &err), SY_EFORMAT);
    cr_assert(strstr(err.text, "given twice"));
    memset(&err, 0, sizeof(err));
    cr_assert_eq(syi_safetensors_plan(&file, huge, 1, NULL, 0, &err), SY_EINVAL);
    cr_assert_eq(syi_safetensors_plan(&file, NULL, 0, NULL, 0, NULL), SY_OK);
    syi_safetensors_close(&file);
    plan(&file);
    memset(&err, 0, sizeof(err));
    cr_assert_eq(syi_file_write(path, "short", 5, NULL), SY_OK);
    cr_assert_eq(syi_safetensors_attach(&file, path, &err), SY_EMISMATCH);
    memset(&err, 0, sizeof(err));
    cr_assert_eq(syi_safetensors_create(&file, "/tmp/switchyard-test-none/x", &err), SY_ENOENT);
    syi_safetensors_close(&file);
}
