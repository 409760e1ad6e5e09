/* SPDX-License-Identifier: Apache-2.0 */
/* A packed model: one file with what inference needs, made by `switchyard pack`. It is a safetensors file:
 *
 *   __metadata__   format (SYI_PACKED_FORMAT, the first entry), switchyard, step, weights, weights_sha256
 *   checksums      uint32 [tensors]: the CRC-32C of each tensor in the order of names; in its own place that of all
 *                  bytes before the data
 *   run.conf       uint8: the run's configuration
 *   vocabulary...  uint8: files of vocabularies, named as their copies in a run directory
 *   target/NAME    a parameter: float32, bfloat16, or int8 with its scales (base/int8.h), float32, in
 *   target/NAME.scales  whose dims are those of the parameter without the one that is summed over */
#ifndef SYI_PACKED_H
#define SYI_PACKED_H

#include "base/run_config.h"
#include "base/safetensors.h"

#define SYI_PACKED_FORMAT    "switchyard packed model 1"
#define SYI_PACKED_CHECKSUMS "checksums"
#define SYI_PACKED_CONFIG    "run.conf"
#define SYI_PACKED_TARGET    "target/"

struct syi_packed {
    struct syi_safetensors file;
    uint32_t *sum;              /* [file.n_tensors] */
    int64_t step;               /* of the checkpoint it was made of */
    const char *weights_sha256; /* of that, 64 digits; in file */
};

/* Whether the path is a file that begins as packed models do, whole or not. */
int syi_packed_is(const char *path);
/* The error of a file of which that says no: it cannot be read, or SY_EFORMAT. */
int syi_packed_refuse(const char *path, struct sy_error *err);
/* Opens the file and compares the checksum of its header. SY_EFORMAT: it is cut short, damaged, or no packed model.
 * Closed by the caller, after a failure too. */
int syi_packed_open(struct syi_packed *packed, const char *path, struct sy_error *err) SYI_MUST_CHECK;
void syi_packed_close(struct syi_packed *packed); /* safe when zeroed */
/* Compares the checksums of all tensors; SY_EFORMAT names the first that differs. */
int syi_packed_check(const struct syi_packed *packed, struct sy_error *err) SYI_MUST_CHECK;
/* The bytes of a tensor of uint8, a NUL after them, owned by the caller; its checksum is compared. */
int syi_packed_read(const struct syi_packed *packed, const char *name, char **text, size_t *bytes,
                    struct sy_error *err) SYI_MUST_CHECK;
/* The configuration that the file holds, whose vocabularies name the packed file as theirs. */
int syi_packed_config(const char *path, struct syi_config *config, struct sy_error *err) SYI_MUST_CHECK;
/* "vocabulary" or "vocabulary.targets": what the file of a vocabulary is called, here and in a run directory. */
enum { SYI_PACKED_NAME = SYI_PART_NAME + 16 };
void syi_packed_vocabulary_name(const struct syi_vocabulary_part *part, char name[SYI_PACKED_NAME]);
/* The bytes of a vocabulary's file, which may be a packed model that has it inside; as syi_file_read. No file is opened
 * where they are held. */
int syi_packed_read_vocabulary(const struct syi_vocabulary_part *part, char **text, size_t *bytes,
                               struct sy_error *err) SYI_MUST_CHECK;
/* Holds these bytes as what the function above gives (base/held_files.h). */
int syi_packed_hold_vocabulary(const struct syi_vocabulary_part *part, const char *text, size_t bytes,
                               struct sy_error *err) SYI_MUST_CHECK;

/* Writing: the sum of all that stands before the data of a planned file. */
uint32_t syi_packed_header_sum(const struct syi_safetensors *planned);

#endif
