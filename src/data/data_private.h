/* What the files of src/data share: file checks, text sources, store writers. Tokenizers have a
 * header of their own. */
#ifndef DATA_DATA_PRIVATE_H
#define DATA_DATA_PRIVATE_H

#include <lockstep/base/file.h>
#include <lockstep/base/lock.h>
#include <lockstep/data.h>
#include <lockstep/data/store_tools.h>
#include <lockstep/data/sums.h>

#include <string.h>

/* ---- growing buffers (buffer.c) ------------------------------------------------------------- */

/* Room for more elements behind count; contents stay. LS_ENOMEM. */
int data_ids_reserve(struct ls_token_list *list, int64_t more, struct ls_error *error);
int data_text_reserve(struct ls_text *text, size_t more, struct ls_error *error);
/* Appends bytes[count]. */
int data_text_put(struct ls_text *text, const void *bytes, size_t count, struct ls_error *error);

/* ---- tokenizers (tokenizer.c, encoder.c; tokenizer_private.h) -------------------------------- */

/* The last place in text[bytes] where it may be cut in two without a change of its ids; 0: none. */
size_t data_last_cut(const struct ls_tokenizer *tokenizer, const unsigned char *text, size_t bytes);
/* Whether a tokenizer is recorded beside the store. */
bool data_tokenizer_recorded(const char *store);
/* True if the bytes of token id end a line. */
bool data_token_ends_line(const struct ls_tokenizer *tokenizer, int64_t id);

/* ---- the files of a store (token_file.c) ---------------------------------------------------- */

/* How they may end, NULL behind them: those of ls_sums_suffix, in its order, and the tokenizer. */
extern const char *const data_suffixes[];
/* path = PREFIX and the suffix, of a store that is named PREFIX, PREFIX.bin or PREFIX.idx.
 * LS_EINVAL if that is too long. */
int data_store_path(char path[PATH_MAX], const char *store, const char *suffix,
                    struct ls_error *error);

/* Megatron's indexed dataset. */
enum {
    DATA_IDX_HEADER_BYTES = 34,
    DATA_IDX_VERSION = 1,
    DATA_VOCABULARY_U16_MAX = 65500, /* from here tokens are int32 */
    DATA_LLMC_HEADER_BYTES = 1024,
};
#define DATA_IDX_MAGIC "MMIDIDX\0" /* and the terminator: 9 bytes */

/* Little-endian words, aligned or not. */
static inline uint32_t data_load_u32(const unsigned char *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}
static inline uint64_t data_load_u64(const unsigned char *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}
/* The number that so many hexadecimal digits are, -1 if one of them is none. */
static inline int data_hex_at(const char *at, int digits)
{
    int number = 0;
    for (int i = 0; i < digits && number >= 0; i++) {
        int small = at[i] | 0x20;
        int digit = at[i] >= '0' && at[i] <= '9'   ? at[i] - '0'
                    : small >= 'a' && small <= 'f' ? small - 'a' + 10
                                                   : -1;
        number = digit < 0 ? -1 : number * 16 + digit;
    }
    return number;
}
/* What is known of a file of tokens. */
struct data_tokens {
    enum ls_dtype dtype;
    int64_t tokens, sequences, documents;
};
/* And of an index. The two are within its bytes, if all of them were parsed. */
struct data_idx {
    struct data_tokens tokens;
    int64_t marks;                  /* of documents: none, or documents + 1 */
    const unsigned char *lengths;   /* int32 [sequences], not aligned */
    const unsigned char *documents; /* int64 [documents + 1]: sequences before each */
};
/* Where a walk over the documents of an index is; {0} at first. Without marks a sequence is one. */
struct data_idx_walk {
    int64_t document, sequence, token; /* the next ones */
};
/* The next document: *count tokens from token *first on. False behind the last one. */
bool data_idx_next(const struct data_idx *idx, struct data_idx_walk *walk, int64_t *first,
                   int64_t *count);
/* Megatron's number of an integer type, 0 for others. */
int data_idx_dtype_code(enum ls_dtype dtype);
/* Where the pointers and the marks begin in an index; lengths follow its header. */
static inline int64_t data_idx_pointers_at(const struct data_idx *idx)
{
    return DATA_IDX_HEADER_BYTES + 4 * idx->tokens.sequences;
}
static inline int64_t data_idx_documents_at(const struct data_idx *idx)
{
    return data_idx_pointers_at(idx) + 8 * idx->tokens.sequences;
}
/* Checks the header of an index of `bytes` bytes; tokens are what .bin has room for. */
int data_idx_header(const char *name, const unsigned char *idx, int64_t bytes, int64_t bin_bytes,
                    struct data_idx *out, struct ls_error *error);
/* The rest of it, piece by piece: all its sequences, which lie one behind the other in .bin without
 * gaps and fill it, then all its documents, of which i is sequences [mark i, mark i + 1). */
struct data_idx_check {
    const char *name, *bin_name; /* these and what follows: given */
    int64_t bin_bytes;
    const struct data_idx *idx;
    int64_t sequences, bytes, documents, last; /* so far; begin at 0 */
};
int data_idx_sequences(struct data_idx_check *check, const unsigned char *lengths,
                       const unsigned char *pointers, int64_t count, struct ls_error *error);
int data_idx_documents(struct data_idx_check *check, const unsigned char *documents, int64_t count,
                       struct ls_error *error);
int data_idx_end(const struct data_idx_check *check, struct ls_error *error);
/* Checks idx[bytes] as the index of a .bin file of bin_bytes. */
int data_idx_parse(const char *name, const unsigned char *idx, size_t bytes, const char *bin_name,
                   int64_t bin_bytes, struct data_idx *out, struct ls_error *error);
/* Checks file[bytes], of which at least the header is readable, as llm.c tokens of file_bytes.
 * *is_llmc is false if the magic is of no llm.c token file (then LS_OK). */
int data_llmc_parse(const char *name, const unsigned char *file, int64_t file_bytes, bool *is_llmc,
                    struct data_tokens *out, struct ls_error *error);

/* ---- which tokens count (mask.c) ------------------------------------------------------------ */

enum { DATA_MASK_HEADER_BYTES = 32 };
void data_mask_header(unsigned char header[DATA_MASK_HEADER_BYTES], int64_t tokens, int64_t counted,
                      const int32_t *lengths, int64_t sequences);
/* Checks the header of a mask of `bytes` bytes as that of a store of so many tokens; *lengths is
 * the digest of those in its index, NULL: it is not known. *counted = what the header says. */
int data_mask_check(const char *name, const unsigned char *header, int64_t bytes, int64_t tokens,
                    const uint64_t *lengths, int64_t *counted, struct ls_error *error);
/* LS_EDATA: the mask counts `found` tokens and says `counted`, or its last byte is not clean. */
int data_mask_check_counted(const char *name, int64_t found, int64_t counted, bool clean,
                            struct ls_error *error);
/* How many of the tokens [first, first + count) count. */
int64_t data_mask_counted(const unsigned char *bits, int64_t first, int64_t count);
/* targets[count] = -1 if the token does not count. */
void data_mask_apply(const unsigned char *bits, int64_t first, int64_t count, int32_t *targets);

/* ---- which documents share a sample (pack_file.c) -------------------------------------------- */

enum { DATA_PACK_HEADER_BYTES = 56 };
/* What a packing is of: the tokens of its store, and a digest of where its documents end. */
struct data_ends {
    int64_t tokens;
    uint64_t digest;
};
/* PREFIX.pack, within its file. Not aligned. */
struct data_pack {
    int64_t tokens; /* T */
    int64_t samples, pieces;
    const unsigned char *before; /* int64 [samples + 1]: pieces before each */
    const unsigned char *firsts; /* int64 [pieces] */
    const unsigned char *counts; /* int32 [pieces] */
};
/* Of a file with so many samples and pieces. */
size_t data_pack_bytes(int64_t samples, int64_t pieces);
/* Fills the header of file[data_pack_bytes], of which the rest is there. */
void data_pack_header(unsigned char *file, int64_t tokens, int64_t samples, int64_t pieces,
                      const struct data_ends *ends);
/* The parts of a file that was checked. */
void data_pack_of(const unsigned char *file, struct data_pack *pack);
/* Checks file[bytes] as that of the store with these ends, for samples of `tokens` targets. */
int data_pack_parse(const char *name, const unsigned char *file, size_t bytes,
                    const struct data_ends *ends, int64_t tokens, struct data_pack *pack,
                    struct ls_error *error);
/* LS_EDATA, behind whose text stands how the packing is made. what: "it again". */
int data_pack_again(const char *name, const char *what, int64_t tokens, struct ls_error *error);
static inline int64_t data_pack_before(const struct data_pack *pack, int64_t sample)
{
    return (int64_t)data_load_u64(pack->before + 8 * sample);
}
static inline void data_pack_piece(const struct data_pack *pack, int64_t piece, int64_t *first,
                                   int64_t *count)
{
    *first = (int64_t)data_load_u64(pack->firsts + 8 * piece);
    *count = (int32_t)data_load_u32(pack->counts + 4 * piece);
}

/* ---- documents as samples (packing.c) ------------------------------------------------------- */

struct data_packing;
/* Samples of `tokens` inputs; then the documents of each store, which begins at token `first` of
 * the stream; then the samples are found. LS_EDATA if there are none. */
int data_packing_new(int64_t tokens, struct data_packing **out, struct ls_error *error);
int data_packing_add(struct data_packing *packing, const struct data_idx *idx, int64_t first,
                     struct ls_error *error);
/* Instead: the samples of a store's PREFIX.pack, file[bytes], which is taken over. */
int data_packing_add_pack(struct data_packing *packing, const char *name, unsigned char *file,
                          size_t bytes, const struct data_ends *ends, int64_t first,
                          struct ls_error *error);
int data_packing_finish(struct data_packing *packing, const char *name, struct ls_error *error);
void data_packing_free(struct data_packing *packing);
int64_t data_packing_samples(const struct data_packing *packing);
/* Whether a file of the store is elsewhere. */
bool data_store_elsewhere(const struct ls_token_store *store);
/* That of the store; NULL: samples are of the stream. */
const struct data_packing *data_store_packing(const struct ls_token_store *store);

/* ---- reading corpora (source.c, corpus.c) --------------------------------------------------- */

/* Bytes of a file; .gz and .zst are unpacked. */
struct data_source;
int data_source_open(const char *path, struct data_source **out, struct ls_error *error);
void data_source_close(struct data_source *source);
/* *got = bytes read into buffer, 0 at the end. A truncated or damaged archive is LS_EDATA. */
int data_source_read(struct data_source *source, void *buffer, size_t bytes, size_t *got,
                     struct ls_error *error);

/* Appends the text under `key` of the JSON object line[length], which is changed, as Python's
 * json.loads takes it; half a surrogate pair becomes U+FFFD. LS_EDATA if the record is bad. */
int data_record_text(char *line, size_t length, const char *key, struct ls_text *out,
                     struct ls_error *error);
/* Its two ways: of a record that is plain, in one pass (record_plain.c), false for another one, and
 * then out is as it was; and of any. */
bool data_record_plain(const char *line, size_t length, const char *key, struct ls_text *out);
int data_record_any(char *line, size_t length, const char *key, struct ls_text *out,
                    struct ls_error *error);
/* The parts of examples: text [previous end, end) counts as targets or does not; with ends_document
 * the next part begins another example. */
struct data_spans {
    struct data_span {
        size_t end;
        bool counts, ends_document;
    } * list;
    int64_t count, room;
};
/* The same of {"prompt": ..., "completion": ...}: appends both to *out; *spans becomes what counts,
 * which is the completion. One that is empty is LS_EDATA. */
int data_record_pair(char *line, size_t length, struct ls_text *out, struct data_spans *spans,
                     struct ls_error *error);
/* The same of {"messages": [...]}: what the conversation teaches (ls_chat_examples). */
int data_record_chat(char *line, size_t length, const struct ls_chat *chat, struct ls_text *out,
                     struct data_spans *spans, struct ls_error *error);

/* LS_EDATA unless the line is an object. */
int data_record_check(char *line, size_t length, struct ls_error *error);

/* *weight = the number under key of an object's line, 1 if there is none, or null. LS_EDATA if it
 * is another value, or not finite as a float32. */
int data_record_weight(const char *line, size_t length, const char *key, float *weight,
                       struct ls_error *error);

enum data_part { DATA_MORE, DATA_DOCUMENT_END, DATA_CORPUS_END };
/* The documents of all inputs, one after the other. */
struct data_corpus;
struct data_corpus_config {
    const char *const *inputs; /* "-" is standard input */
    int count;
    const char *json_key;
    enum ls_prepare_records records;
    const struct ls_chat *chat; /* of LS_RECORDS_CHAT */
    /* What becomes of a bad JSONL record: why holds its file, line and reason. LS_OK passes it
     * over. NULL: it ends the reading. */
    int (*bad)(void *user, const struct ls_error *why, struct ls_error *error);
    void *user;
    bool keep_lines;        /* of what was found */
    bool lines_alone;       /* an object of JSONL is a document also without a text */
    const char *weight_key; /* of a record's weight; NULL: none is read */
};
int data_corpus_open(const struct data_corpus_config *config, struct data_corpus **out,
                     struct ls_error *error);
struct ls_corpus_config;
/* corpus_output.c: the inputs and key of a tool, which the corpus borrows with reading. */
struct data_reading {
    const struct ls_corpus_config *config;
    int64_t *skipped; /* bad records are counted there */
    bool keep_lines;  /* of JSONL, for an output of documents */
    bool lines_alone; /* which nobody asks for the text */
};
int data_reading_open(struct data_reading *reading, struct data_corpus **out,
                      struct ls_error *error);
void data_corpus_close(struct data_corpus *corpus);
/* LS_EINVAL if the file that is to be written, or removed, at path is one of the inputs. */
int data_corpus_spare(const struct data_corpus *corpus, const char *path, struct ls_error *error);
/* Appends the next bytes of the current document to *out, about `want` of them, and says what comes
 * after. DATA_CORPUS_END appends nothing. */
int data_corpus_read(struct data_corpus *corpus, size_t want, struct ls_text *out,
                     enum data_part *part, struct ls_error *error);
/* The files that are read, in order. */
size_t data_corpus_paths(const struct data_corpus *corpus);
const char *data_corpus_path(const struct data_corpus *corpus, size_t index);
bool data_corpus_is_jsonl(const struct data_corpus *corpus, size_t index);
struct data_place {
    size_t path;
    int64_t line; /* 0: the whole file */
};
/* The document that was read last. Borrowed. */
struct data_found {
    struct data_place place;
    struct ls_text line;     /* its record, if lines are kept; empty if it is a whole file */
    struct data_spans spans; /* its parts, where the records are examples */
    float weight;            /* the number under weight_key; 1 without */
};
const struct data_found *data_corpus_found(const struct data_corpus *corpus);

/* ---- its texts in parts (corpus_parts.c) ----------------------------------------------------- */

struct data_parts {
    struct data_corpus *corpus;
    /* The last place in text[bytes] where a document may be cut in two; 0: none so far. */
    size_t (*cut)(const struct ls_tokenizer *tokenizer, const unsigned char *text, size_t bytes);
    const struct ls_tokenizer *tokenizer;
    /* A document, or with ends = false what a cut leaves of it, is all of the part's text from
     * begin on. */
    int (*put)(void *user, void *part, size_t begin, bool ends, struct ls_error *error);
    void *user;
    /* Its own; 0 at first. open: the last part ended within a document; end: nothing is left. */
    struct ls_text carry;
    bool open, end;
};
/* *text becomes the next mebibyte or so. part is for put. */
int data_part_read(struct data_parts *parts, struct ls_text *text, void *part,
                   struct ls_error *error);

/* ---- work in order (work.c) ------------------------------------------------------------------ */

/* Jobs are filled by the calling thread, worked on by any, and taken by the calling thread in their
 * order: what comes of them does not depend on the workers. */
struct data_work {
    size_t job_bytes; /* a job is zero at first, and used again and again */
    int workers;
    const volatile int *stop; /* LS_ESTOPPED when it is set; NULL: never */
    const char *stopped;      /* how that text ends */
    int (*fill)(void *user, void *job, bool *last, struct ls_error *error);
    int (*work)(void *user, int worker, void *job, struct ls_error *error); /* worker: from 0 */
    int (*take)(void *user, void *job, struct ls_error *error);             /* NULL: nothing */
    void (*release)(void *job); /* of what a job holds */
    void *user;
};
int data_work_run(const struct data_work *work, struct ls_error *error);

/* ---- a folder of parts, with which a stopped job goes on (job_folder.c) ---------------------- */

/* How the record of the job begins, and how a part's list of removed documents ends. */
#define DATA_JOB_BEGINS    "lockstep data "
#define DATA_REMOVED_JSONL ".removed.jsonl"

/* What a tool reads. */
struct data_inputs {
    const void *of;
    /* LS_EINVAL if what is to be written at path is one of them. */
    int (*spare)(const void *of, const char *path, struct ls_error *error);
    ls_writer *list; /* each by data_job_input */
    /* One of them that is no regular file, so that nothing shows whether it has changed; NULL:
     * there is none. Itself NULL: none ever. */
    const char *(*pipe)(const void *of);
};
void data_job_input(FILE *file, const char *path, const char *kind);
/* Whether both names lead to one file, which is there. */
bool data_same_file(const char *a, const char *b);

/* Part i is of documents [i * part_documents, (i + 1) * part_documents) of the job. */
struct data_folder {
    const char *path; /* borrowed; NULL: the output is no folder. This and the next: given */
    int64_t part_documents;
    int64_t parts; /* that were there, one behind the other; 0 at first */
    struct ls_lock lock;
};
/* Makes the folder, or takes the parts that are there: their last files end in `last`. what says
 * what is made, in lines; a folder of other parts is LS_EINVAL. Release the lock whatever this
 * returns. */
int data_folder_open(struct data_folder *folder, const char *last, const char *what,
                     const struct data_inputs *inputs, struct ls_error *error);
/* The name of a part's file. */
int data_folder_part(const struct data_folder *folder, int64_t part, const char *suffix,
                     char path[PATH_MAX], struct ls_error *error);
/* Whether the document's part was there. */
bool data_folder_has(const struct data_folder *folder, int64_t document);
/* The part that the document is the first one of; -1: it is not, or there is no folder. */
int64_t data_folder_begins(const struct data_folder *folder, int64_t document);
/* Whether this file of a folder says what a job did there, and is no part. */
bool data_folder_tells(const char *folder, const char *name);
/* How the text of a stop by a signal ends. */
const char *data_folder_stopped(const struct data_folder *folder);

/* ---- digests of a store's files, being made (sums.c) ----------------------------------------- */

/* *out is to be freed with ls_sums_free whatever this returns. */
int data_sums_new(struct ls_sums **out, struct ls_error *error);
/* The bytes that follow are of this file, from its first one on. */
void data_sums_begin(struct ls_sums *sums, enum ls_sums_file file);
int data_sums_add(struct ls_sums *sums, const void *bytes, size_t count, struct ls_error *error);
/* The file is cut to `bytes`: returns where its last block begins, from which on its bytes have to
 * be added again. */
int64_t data_sums_cut(struct ls_sums *sums, int64_t bytes);
/* The file is whole. */
int data_sums_end(struct ls_sums *sums, struct ls_error *error);
/* Appends what PREFIX.sums holds. */
int data_sums_text(const struct ls_sums *sums, struct ls_text *text, struct ls_error *error);

/* ---- writing Megatron stores (writer.c) ----------------------------------------------------- */

/* The name of a file of a store, and the one that it has until it is published. A link stays, and
 * what it leads to is written. LS_EIO if a folder, a pipe or a device stands there. */
struct data_name {
    char *path, *temporary;
};
int data_name_init(struct data_name *name, const char *prefix, const char *suffix,
                   struct ls_error *error);
int data_name_publish(const struct data_name *name, struct ls_error *error);
/* Removes what was not published. */
void data_name_release(struct data_name *name);

/* What tokens have one behind the other: whether they count, and what they weigh. In the order of
 * enum ls_sums_file from LS_SUMS_MASK on. */
enum data_runs { DATA_MASK, DATA_WEIGHTS, DATA_RUNS };

/* Files under temporary names until data_writer_publish. ls_atomic_file would rename one file as
 * soon as it is on disk; here several must be on disk before the first gets its name. */
struct data_writer {
    struct data_name files[LS_SUMS_FILES + 1]; /* by ls_sums_suffix */
    struct ls_sums *digests;
    bool digested;       /* what is being written is a file with digests */
    const char *current; /* the temporary file being written */
    int fd;              /* of it; -1: none */
    enum ls_dtype dtype;
    unsigned char *buffer;
    size_t buffered;
    int64_t tokens, document_first; /* all tokens; where the document being written begins */
    struct ls_token_list lengths;   /* of sequences */
    int64_t *documents;             /* sequences before each document's end */
    int64_t documents_count, documents_room;
    struct data_run_list {
        struct data_run {
            int64_t first;
            float value;
        } * list; /* tokens from which on each has that value */
        int64_t count, room;
        bool written; /* as a file */
    } runs[DATA_RUNS];
};
/* Names only. Call data_writer_release whatever this returns; it also takes {.fd = -1}. */
int data_writer_init(struct data_writer *writer, const char *prefix, enum ls_dtype dtype,
                     struct ls_error *error);
/* Opens the temporary .bin; the functions below need it. */
int data_writer_begin(struct data_writer *writer, struct ls_error *error);
/* Removes what was not published. */
void data_writer_release(struct data_writer *writer);
int data_writer_append(struct data_writer *writer, const int32_t *ids, int64_t count,
                       struct ls_error *error);
/* Tokens from here on count as targets, or do not: the store has a mask. At first none does. */
int data_writer_mark(struct data_writer *writer, bool counts, struct ls_error *error);
/* Tokens from here on weigh that as targets: the store has weights. At first each weighs 1. */
int data_writer_weigh(struct data_writer *writer, float weight, struct ls_error *error);
/* Moves the marks and weights of the tokens from `first` on to those of `to`, which has none yet.
 */
int data_writer_move_runs(struct data_writer *writer, int64_t first, struct data_writer *to,
                          struct ls_error *error);
/* Tokens that count; all, if there is no mask. */
int64_t data_writer_counted(const struct data_writer *writer);
/* The tokens since the last end are a document; none: nothing happens. */
int data_writer_end_document(struct data_writer *writer, struct ls_error *error);
/* ids[count] = tokens [first, first + count) written so far. */
int data_writer_read(struct data_writer *writer, int64_t first, int64_t count, int32_t *ids,
                     struct ls_error *error);
/* First token of a document; documents_count of them, and the end of the last behind them. */
int64_t data_writer_document_first(const struct data_writer *writer, int64_t document);
/* Back to the first `tokens` tokens, of which the first `documents` documents remain ended. */
int data_writer_truncate(struct data_writer *writer, int64_t tokens, int64_t documents,
                         struct ls_error *error);
/* Writes the index, mask and weights if there are any, and the digests, and brings all to disk. */
int data_writer_finish(struct data_writer *writer, struct ls_error *error);
/* Removes an older store of that name, but for its .bin: its index first, so that it can not be
 * mistaken for the new one while names change. */
void data_writer_clear(const struct data_writer *writer);
/* Renames them to their final names, .idx last, after data_writer_clear. */
int data_writer_publish(struct data_writer *writer, struct ls_error *error);

/* What PREFIX.tokenizer holds, brought to disk as path. */
int data_tokenizer_write(const struct ls_tokenizer *tokenizer, const char *path,
                         struct ls_error *error);

/* ---- documents of a store that is there (stored.c) ------------------------------------------- */

struct data_stored {
    const char *name; /* borrowed */
    struct ls_token_store *store;
    struct ls_token_file file;      /* its only one */
    struct ls_tokenizer *tokenizer; /* NULL: none is known */
    int64_t vocabulary;             /* that of the tokenizer, or all of int32 */
    struct data_file *idx;
    struct data_idx what;
    struct data_ends ends;
    struct data_idx_walk walk;       /* of data_stored_next; {0}: at the first document */
    struct data_stored_piece *piece; /* of the index; NULL: none was read */
    int32_t *ids;                    /* data_stored_ids */
    int64_t ids_room;
};
/* spec: a tokenizer, or NULL for the recorded one. data_stored_release takes it whatever this
 * returns. data_stored_index makes its documents known: LS_EDATA if the format has none. */
int data_stored_open(struct data_stored *stored, const char *name, const char *spec,
                     struct ls_error *error);
int data_stored_index(struct data_stored *stored, struct ls_error *error);
/* As data_stored_open, of a store whose tokenizer does not matter. */
int data_stored_open_alone(struct data_stored *stored, const char *name, struct ls_error *error);
void data_stored_release(struct data_stored *stored);
/* Tokens [first, first + count) are the next document; false behind the last one, and if it cannot
 * be read, which *status says. Those without tokens are passed over. */
bool data_stored_next(struct data_stored *stored, int64_t *first, int64_t *count, int *status,
                      struct ls_error *error);
/* *ids = tokens [first, first + count), valid until the next call. */
int data_stored_ids(struct data_stored *stored, int64_t first, int64_t count, const int32_t **ids,
                    struct ls_error *error);
/* *out becomes the text of a document, without what was put around it. Needs a tokenizer. */
int data_stored_text(struct data_stored *stored, int64_t first, int64_t count, struct ls_text *out,
                     struct ls_error *error);
/* Appends {"KEY": "TEXT"} to line. */
int data_jsonl_line(const char *key, const struct ls_text *text, struct ls_text *line,
                    struct ls_error *error);
/* LS_ESTOPPED if *stop, and how its text ends; the meter shows how much of all is done, both in
 * `what`. */
int data_tool_step(const volatile int *stop, const char *stopped, const char *what, int64_t done,
                   int64_t all, struct ls_error *error);

/* ---- shares of documents (store_merge.c) ----------------------------------------------------- */

enum { DATA_SPLIT_JOB_BYTES = 32 + 12 * LS_PARTS_MAX };
/* What is made in the folder of a part. */
void data_split_job(const struct ls_shares *shares, int part, char text[DATA_SPLIT_JOB_BYTES]);

/* ---- stores made of others (store_output.c) -------------------------------------------------- */

/* The stores that a tool reads, as what a folder is made of. */
struct data_store_list {
    const char *const *names;
    int count;
};
struct data_inputs data_store_inputs(const struct data_store_list *stores);

/* What is made, and of what. */
struct data_making {
    const char *what; /* the command */
    struct data_store_list stores;
    enum ls_dtype dtype;
    const struct ls_tokenizer *tokenizer; /* NULL: none is recorded */
    bool masked, weighted;                /* the outputs are to have a mask, weights */
    int64_t part_documents;
};
/* PREFIX.* under temporary names, or FOLDER/NNNNNN.* of which the last part has them. */
struct data_output {
    const struct data_making *making; /* borrowed */
    char prefix[PATH_MAX];
    struct data_folder folder;
    struct data_writer writer;
    struct data_name recorded; /* PREFIX.tokenizer */
    bool open;                 /* the writer is */
    int64_t given;             /* documents */
    struct ls_store_part done; /* of what has its names */
};
/* LS_EINVAL if a file of the output is one of the stores that are read. A prefix that ends in a
 * slash is a folder. Release it whatever this returns; it takes zeros too. */
int data_output_open(struct data_output *output, const char *prefix,
                     const struct data_making *making, struct ls_error *error);
/* The next document, with its mask and weights: it is not read if its part was there. */
int data_output_copy(struct data_output *output, struct data_stored *from, int64_t first,
                     int64_t count, struct ls_error *error);
/* Brings all to disk, and then gives it its names. */
int data_output_finish(struct data_output *output, struct ls_error *error);
int data_output_publish(struct data_output *output, struct ls_error *error);
void data_output_release(struct data_output *output);

#endif
