/* SPDX-License-Identifier: Apache-2.0 */
/* Records of any bytes, in every format: line ends and nothing else are between them, pieces of any size and a read at
 * their offset give the same ones, and what their fields are lies where it should. An input that begins with R is four
 * times in the file, so that some are longer than a document may be. */
#include "config.h"

#include <string.h>
#include <unistd.h>

#include "base/run_config.h"
#include "data/record.h"
#include "fuzz.h"

struct text {
    char *bytes;
    size_t n;
};

static int is_inside(struct syi_span span, const char *from, size_t bytes)
{
    return from && span.text >= from && span.text + span.bytes <= from + bytes;
}

static void check_fields(const struct syi_record_format *format, struct syi_span record)
{
    static struct syi_fields fields; /* used again, as for the records of a file */
    struct sy_error err = {0};
    int status = format->parse(record, &fields, &err);
    if (status) {
        FUZZ_REQUIRE(status == SY_EFORMAT && err.text[0]);
        return;
    }
    for (size_t i = 0; i < fields.n; i++) {
        const struct syi_record_field *f = &fields.field[i], *found = syi_fields_find(&fields, f->name, 0);
        struct syi_span text = f->text;
        FUZZ_REQUIRE(found && found <= f && syi_fields_count(&fields, f->name) > 0);
        FUZZ_REQUIRE(!text.text || is_inside(text, record.text, record.bytes) ||
                     is_inside(text, fields.decoded.data, fields.decoded.length) ||
                     (text.bytes == 4 && !memcmp(text.text, "true", 4)) ||
                     (text.bytes == 5 && !memcmp(text.text, "false", 5)));
    }
}

static void check_format(const struct text *file, const char *path, int fd,
                         const struct syi_record_format *format)
{
    static char *buffer;
    static size_t capacity;
    struct syi_scan scan, other;
    struct syi_record record, same;
    size_t from = 0;
    FUZZ_REQUIRE(syi_scan_open(&scan, path, format, NULL) == SY_OK);
    FUZZ_REQUIRE(syi_scan_open(&other, path, format, NULL) == SY_OK);
    other.piece = 1 + file->n % 5000;
    int status;
    while ((status = syi_scan_next(&scan, &record, NULL)) == SY_OK) {
        size_t at = (size_t)record.offset;
        struct syi_span again, text = record.text;
        FUZZ_REQUIRE(at >= from && at <= file->n && text.bytes <= file->n - at);
        for (; from < at; from++)
            FUZZ_REQUIRE(strchr("\r\n", file->bytes[from]) ? file->bytes[from] != 0 : from < 3);
        FUZZ_REQUIRE(!memcmp(text.text, file->bytes + at, text.bytes));
        FUZZ_REQUIRE(syi_scan_next(&other, &same, NULL) == SY_OK);
        FUZZ_REQUIRE(same.offset == record.offset && same.line == record.line &&
                     same.text.bytes == text.bytes && !same.bad == !record.bad);
        FUZZ_REQUIRE(syi_record_read(fd, path, format, scan.line_end, record.offset, &buffer, &capacity,
                                     &again, NULL) == SY_OK);
        FUZZ_REQUIRE(again.bytes == text.bytes);
        FUZZ_REQUIRE(!format->runs_on || (text.bytes > 0 && text.bytes <= SYI_DOCUMENT_BYTES));
        check_fields(format, text);
        from = at + text.bytes;
    }
    FUZZ_REQUIRE(status == SY_ENOENT);
    FUZZ_REQUIRE(syi_scan_next(&other, &same, NULL) == status);
    FUZZ_REQUIRE(scan.id.bytes == (int64_t)file->n && !strcmp(scan.id.sha256, other.id.sha256));
    syi_scan_close(&scan);
    syi_scan_close(&other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static FILE *file; /* without a name; stays open */
    char path[32];
    size_t times = size && data[0] == 'R' ? 4 : 1;
    struct text all = {malloc(size * times + 1), size * times};
    FUZZ_REQUIRE(all.bytes);
    for (size_t i = 0; i < times && size; i++) memcpy(all.bytes + i * size, data, size);
    if (!file) file = tmpfile();
    FUZZ_REQUIRE(file && ftruncate(fileno(file), 0) == 0);
    FUZZ_REQUIRE(pwrite(fileno(file), all.bytes, all.n, 0) == (ssize_t)all.n);
    snprintf(path, sizeof path, "/dev/fd/%d", fileno(file));
    for (int format = SYI_FORMAT_TSV; format <= SYI_FORMAT_DOCUMENTS; format++)
        check_format(&all, path, fileno(file), syi_record_format(format));
    free(all.bytes);
    return 0;
}
