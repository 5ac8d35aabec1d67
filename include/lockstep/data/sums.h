/* lockstep/data/sums.h - digests of a token store's files, block by block.
 *
 * ls_data_prepare publishes PREFIX_train.sums with PREFIX_train.bin, .idx, .mask and
 * .weights (and the same of _valid). Whoever copies a store, or a part of one, knows from it that
 * the bytes are the store's:
 *
 *     struct ls_sums *sums;
 *     ls_sums_open("corpus_train", &sums, &error);      // NULL if the store has none
 *     for (int64_t i = 0; i < ls_sums_blocks(sums, LS_SUMS_BIN); i++)
 *         ls_sums_check(sums, LS_SUMS_BIN, i, bytes, ls_sums_block_bytes(sums, LS_SUMS_BIN, i),
 *                       &error);
 *     ls_sums_free(sums);
 *
 * Stores of other programs, and of earlier versions, have no .sums.
 *
 * The file is text. Each line ends with "\n"; N and the digests have no other form than this:
 *
 *     lockstep sums 1 4194304         version, and bytes of a block
 *     bin N                           bytes of PREFIX.bin; then the digest of each of its blocks,
 *     32 hexadecimal digits           the last of which may be shorter
 *     idx N, mask N, weights N        the same; no line "mask" or "weights" without such a file
 *     end 32 hexadecimal digits       digest of all lines before this one
 *
 * A digest is XXH3-128 in its canonical form, as xxh128sum prints it. All functions are Local; a
 * struct ls_sums is immutable after it was opened. */
#ifndef LOCKSTEP_DATA_SUMS_H
#define LOCKSTEP_DATA_SUMS_H

#include <lockstep/base.h>

LS_C_BEGIN

enum ls_sums_file { LS_SUMS_BIN, LS_SUMS_IDX, LS_SUMS_MASK, LS_SUMS_WEIGHTS, LS_SUMS_FILES };
enum {
    LS_SUMS_BLOCK_BYTES = 4 << 20,
    LS_SUMS_BYTES_MAX = 256 << 20, /* of PREFIX.sums, which then covers 32 TiB */
};
struct ls_sums;

/* The sums of text[bytes], for who has it from elsewhere than a file; name stands for the file in
 * errors. LS_EDATA names line, what was found and what was expected; LS_ENOMEM. */
int ls_sums_parse(const char *name, const char *text, size_t bytes, struct ls_sums **out,
                  struct ls_error *error);
/* Those of the store PREFIX, PREFIX.bin or PREFIX.idx, from PREFIX.sums; *out is NULL, with LS_OK,
 * if there is no such file. */
int ls_sums_open(const char *store, struct ls_sums **out, struct ls_error *error);
/* NULL is allowed. */
void ls_sums_free(struct ls_sums *sums);

/* ".bin", ".idx", ".mask", ".weights"; ".sums" of LS_SUMS_FILES. */
const char *ls_sums_suffix(enum ls_sums_file file);
/* Bytes of a file of the store; -1: it has no such file. */
int64_t ls_sums_bytes(const struct ls_sums *sums, enum ls_sums_file file);
/* How many blocks that is; 0 of a file that is empty or not there. */
int64_t ls_sums_blocks(const struct ls_sums *sums, enum ls_sums_file file);
/* Bytes of block `block`, which begins at byte block * LS_SUMS_BLOCK_BYTES. */
size_t ls_sums_block_bytes(const struct ls_sums *sums, enum ls_sums_file file, int64_t block);
/* LS_EDATA, with the file, the block and its place, if bytes[count] are not the store's block.
 * LS_EINVAL if there is no such block. */
int ls_sums_check(const struct ls_sums *sums, enum ls_sums_file file, int64_t block,
                  const void *bytes, size_t count, struct ls_error *error);

LS_C_END
#endif
