/* What the files of tokenizers share: characters, byte-pair tables, patterns, added tokens, and the
 * steps that a text goes through.
 *
 *     text -> added tokens -> normalizers -> added tokens -> pre-tokenizers -> byte-pair merging
 */
#ifndef DATA_TOKENIZER_PRIVATE_H
#define DATA_TOKENIZER_PRIVATE_H

#include "data/data_private.h"

/* ---- UTF-8 (utf8.c), classes of characters (unicode.c) --------------------------------------- */

/* The character that begins at text, which is well-formed; *bytes = its length. */
uint32_t data_utf8_decode(const unsigned char *text, size_t *bytes);

/* Where the character begins that ends before `at` > 0 of a well-formed text. */
size_t data_utf8_before(const unsigned char *text, size_t at);

/* utf8proc's number of a character's general category. */
int data_category(uint32_t code);
/* "Lu" and so on. */
const char *data_category_name(int category);
/* Whether a category is of a class: "L", "Lu". */
bool data_category_within(int category, const char *class);
/* Whether there is such a class. */
bool data_category_known(const char *class);
struct data_unicode_range {
    uint32_t first, last;
    int category;
};
/* Characters that libraries may not know yet, ascending. */
const struct data_unicode_range *data_unicode_added(int *count);
/* Whether the reference's normal forms take it for a letter that stands alone, and those of later
 * versions of Unicode reorder it or join it with another one. */
bool data_is_later_mark(uint32_t code);
/* Whether StripAccents takes it away. */
bool data_is_accent(uint32_t code);
/* Whether only later versions know what it is compatible with, for NFKC and NFKD. */
bool data_is_later_compatible(uint32_t code);
/* The small letters of a character, one or two. */
int data_lowercase(uint32_t code, uint32_t small[2]);
/* Unicode's white space, and the characters of its words. */
bool data_is_space(uint32_t code);
static inline bool data_is_ascii_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}
bool data_is_word(uint32_t code);

/* ---- byte strings (strings.c) ---------------------------------------------------------------- */

struct data_string {
    const unsigned char *bytes;
    size_t count;
};
/* Byte strings one behind the other: string i is bytes[offset[i] .. offset[i + 1]). Either they are
 * written there, or added. */
struct data_strings {
    uint32_t *offset;
    unsigned char *bytes;
    size_t bytes_room;
    int64_t count, room; /* of those that were added */
    int32_t *slots;      /* strings by their bytes: open addressing, at most half full; -1: empty */
    uint64_t mask;
};
/* For at most `most` strings, of so many bytes together if they are written; found: by their bytes.
 * Release them whatever this returns. */
int data_strings_init(struct data_strings *strings, int64_t most, size_t bytes, bool found,
                      struct ls_error *error);
void data_strings_release(struct data_strings *strings);
/* The number of a string that was added or indexed, the first of equal ones; -1: there is none. */
int32_t data_strings_find(const struct data_strings *strings, struct data_string string);
/* String i, which is written, is found by its bytes. */
void data_strings_index(struct data_strings *strings, int32_t i);
/* *i = the string's number; it is added if there is none of its bytes. An empty one always is.
 * There must be room for it, and it is no part of these strings. */
int data_strings_add(struct data_strings *strings, struct data_string string, int32_t *i,
                     struct ls_error *error);
static inline struct data_string data_string(const struct data_strings *strings, int64_t i)
{
    uint32_t begin = strings->offset[i];
    return (struct data_string){strings->bytes + begin, strings->offset[i + 1] - begin};
}

/* ---- byte-pair encoding (bpe_build.c, bpe_file.c, bpe.c) ------------------------------------- */

/* How tokens are written, and so what a text begins as. */
enum data_form {
    DATA_BYTE_CHARACTERS, /* bytes, each written as a character; a text begins as its bytes */
    DATA_BYTES,           /* the same, written as they are */
    DATA_CHARACTERS,      /* a text begins as its characters */
};
struct data_merge {
    uint64_t pair; /* left id << 32 | right id */
    int32_t rank;  /* line in merges.txt; -1: empty slot */
    int32_t id;    /* of the result */
};
struct data_bpe {
    int64_t vocabulary; /* tokens have ids below it; some may have none */
    enum data_form form;
    struct data_strings tokens; /* [vocabulary]; empty: no token has this id */
    struct data_merge *merges;  /* by pairs: open addressing, at most half full */
    uint64_t merges_mask;
    int32_t byte_id[256];  /* symbols of bytes; -1: none */
    int32_t ascii_id[128]; /* symbols of characters */
    int32_t unknown;       /* of what has no symbol; -1: it is left out */
    bool fuse_unknown;     /* one for several in a row */
    bool whole_first;      /* a piece that is a token is not built by merges */
    bool words_part;       /* no merge goes on from a character to a meta space */
};
enum { DATA_TOKEN_BYTES_MAX = 4096 };

/* The bytes of a piece, of which there are 1 to DATA_KEY_BYTES_MAX: equal keys of equal lengths are
 * equal pieces. word[2] is 0 up to 16 bytes. */
enum { DATA_KEY_BYTES_MAX = 24 };
struct data_key {
    uint64_t word[3];
};
/* Loads overlap, so that nothing behind the piece is read. */
static inline struct data_key data_key_of(const unsigned char *piece, size_t bytes)
{
    if (bytes >= 8)
        return (struct data_key){{data_load_u64(piece), data_load_u64(piece + bytes - 8),
                                  bytes > 16 ? data_load_u64(piece + 8) : 0}};
    if (bytes >= 4)
        return (struct data_key){{data_load_u32(piece), data_load_u32(piece + bytes - 4), 0}};
    return (struct data_key){{piece[0], (uint64_t)piece[bytes / 2] << 8 | piece[bytes - 1], 0}};
}

/* What a file says of a model. */
struct data_bpe_model {
    const char *name; /* of the file, for error texts */
    enum data_form form;
    const struct data_string *tokens; /* [vocabulary]; bytes NULL: no token has this id */
    int64_t vocabulary, merges;       /* merges: at most */
    bool byte_fallback;               /* DATA_CHARACTERS: a byte is the token <0xXX> */
    bool all_bytes;                   /* each byte must have a token */
    bool whole_first, fuse_unknown;
    /* Whether a token may be none of byte characters. */
    bool (*is_added)(const void *user, int32_t id);
    const void *user;
};
int data_bpe_init(struct data_bpe *bpe, const struct data_bpe_model *model, struct ls_error *error);
void data_bpe_release(struct data_bpe *bpe);
/* The id of a token, -1 if there is none. */
static inline int32_t data_bpe_token(const struct data_bpe *bpe, struct data_string token)
{
    return data_strings_find(&bpe->tokens, token);
}

/* Which byte a character stands for. */
struct data_byte_map {
    short byte_of[256 + 68]; /* -1: none */
};
void data_byte_map_init(struct data_byte_map *map);
/* out[*count] = the bytes that a token's characters stand for, at most its own count; false if one
 * of them stands for none. */
bool data_byte_map_read(const struct data_byte_map *map, struct data_string token,
                        unsigned char *out, size_t *count);
/* Adds a merge, both sides as they are written. */
int data_bpe_merge(struct data_bpe *bpe, const struct data_byte_map *map, struct data_string left,
                   struct data_string right, int32_t rank, struct ls_error *error);
/* Room for so many merges, of which there are none yet. */
int data_bpe_merges_init(struct data_bpe *bpe, int64_t count, struct ls_error *error);
/* The same by ids; false if the pair was merged before. */
bool data_bpe_merge_ids(struct data_bpe *bpe, int32_t left, int32_t right, int32_t rank,
                        int32_t result);
/* The slot of the neighbours left and right; its rank is below 0 if they do not merge. */
static inline struct data_merge *data_merge_slot(const struct data_bpe *bpe, int32_t left,
                                                 int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t hash = (pair ^ pair >> 29) * 0x9e3779b97f4a7c15u;
    uint64_t slot = (hash ^ hash >> 32) & bpe->merges_mask;
    while (bpe->merges[slot].rank >= 0 && bpe->merges[slot].pair != pair)
        slot = (slot + 1) & bpe->merges_mask;
    return &bpe->merges[slot];
}

struct data_named_text {
    const char *name; /* for error texts */
    const char *bytes;
    size_t count;
};
#define DATA_PAIR_EOD "<|endoftext|>"
/* What ends a document if nothing else says it; NULL behind them. */
extern const char *const data_document_ends[];
/* GPT-2's pair of files; *eod = the id of DATA_PAIR_EOD. */
int data_bpe_parse(struct data_bpe *bpe, struct data_named_text vocab,
                   struct data_named_text merges, int32_t *eod, struct ls_error *error);

/* Scratch of one thread. */
struct data_bpe_scratch {
    struct data_piece *cache;
    void *nodes; /* for pieces too long for the cache and the stack */
    size_t nodes_bytes;
    int64_t unknown; /* characters without a symbol so far */
};
int data_bpe_scratch_init(struct data_bpe_scratch *scratch, struct ls_error *error);
void data_bpe_scratch_release(struct data_bpe_scratch *scratch);
/* Appends the ids of one piece, which is well-formed UTF-8 where symbols are characters. Pairs are
 * merged by ascending (rank, position). */
int data_bpe_encode(const struct data_bpe *bpe, struct data_bpe_scratch *scratch,
                    const unsigned char *piece, size_t bytes, struct ls_token_list *out,
                    struct ls_error *error);
/* As data_bpe_encode, always by the heap that long pieces use. */
int data_bpe_encode_long(const struct data_bpe *bpe, struct data_bpe_scratch *scratch,
                         const unsigned char *piece, size_t bytes, struct ls_token_list *out,
                         struct ls_error *error);
/* Appends the id of a byte that is no part of a character. */
int data_bpe_encode_byte(const struct data_bpe *bpe, struct data_bpe_scratch *scratch,
                         unsigned char byte, struct ls_token_list *out, struct ls_error *error);

/* ---- pre-tokenizers (split.c, scan.c) -------------------------------------------------------- */

struct data_range {
    size_t begin, end;
};
/* GPT-2's pattern, as its authors wrote it. */
#define DATA_PATTERN_GPT2                                                                          \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* Who reads a pattern where it comes from: Oniguruma in tokenizer.json, fancy-regex in tiktoken. */
enum data_pattern_syntax { DATA_ONIGURUMA, DATA_FANCY };

/* What a scanner needs to know of a published pattern. */
struct data_scan_rules {
    enum { DATA_SCAN_GPT2, DATA_SCAN_WORDS, DATA_SCAN_CASED } form;
    int digits;        /* the longest run of numbers */
    bool final_spaces; /* white space at the end of a text is one piece */
    bool contractions; /* behind a word */
};
/* The classes of all characters; to be freed. NULL: no memory. */
unsigned char *data_scan_classes_new(struct ls_error *error);
/* End of the piece that begins at start < bytes. */
size_t data_scan_next(const struct data_scan_rules *rules, const unsigned char *classes,
                      const unsigned char *text, size_t bytes, size_t start);

struct data_splitter; /* a pattern or a literal: shared */
/* scanned: where the pattern is a published one. LS_ENOTSUP names what of the pattern is not
 * supported. */
int data_splitter_new(const char *pattern, enum data_pattern_syntax syntax, bool scanned,
                      struct data_splitter **out, struct ls_error *error);
int data_splitter_new_literal(const char *literal, size_t bytes, struct data_splitter **out,
                              struct ls_error *error);
void data_splitter_free(struct data_splitter *splitter);
/* The pattern of a published rank file: "cl100k_base" and so on; NULL: no such name. */
const char *data_pattern_named(const char *name);
/* True if matches cover every text without a gap. */
bool data_splitter_covers(const struct data_splitter *splitter);
/* NULL if it is a pattern. */
const char *data_splitter_literal(const struct data_splitter *splitter);
/* What one thread matches with, NULL if nothing is needed. */
int data_split_state_new(const struct data_splitter *splitter, void **out, struct ls_error *error);
void data_split_state_free(void *state);
/* *found = the first match at start or behind it, {bytes, bytes} if there is none; text[bytes]
 * is well-formed UTF-8. */
int data_split_find(const struct data_splitter *splitter, void *state, const unsigned char *text,
                    size_t bytes, size_t start, struct data_range *found, struct ls_error *error);
/* End of the piece at start < bytes, by a splitter that covers every text. */
size_t data_split_end(const struct data_splitter *splitter, const unsigned char *text, size_t bytes,
                      size_t start);
/* The last place in text[bytes] where a text may be cut in two without a change of the pieces of a
 * scanned pattern; 0: none. lines: not only before a space. */
size_t data_split_last_cut(const unsigned char *text, size_t bytes, bool lines);

/* ---- added tokens (added.c) ------------------------------------------------------------------ */

struct data_added_token {
    char *content, *matched; /* matched: in a normalized text */
    size_t content_bytes, matched_bytes;
    int32_t id;
    bool special, single_word, lstrip, rstrip, normalized;
};
/* Those that are found in one kind of text: before it is normalized, or after. */
struct data_added_set {
    const struct data_added_token **tokens; /* sorted by what they match */
    int count;
    int first[257]; /* tokens that begin with byte b: [first[b], first[b + 1]) */
    bool ordinary;  /* one of them is not special */
};
struct data_added {
    struct data_added_token *tokens;
    int64_t count, room;
    const struct data_added_token **by_id, **by_text; /* [count] */
    struct data_added_set raw, normalized;
};
/* Copies a token; what it matches is set later. */
int data_added_put(struct data_added *added, const char *name, const struct data_added_token *token,
                   struct ls_error *error);
/* Makes tokens found by id and by text. LS_EDATA if two are the same. */
int data_added_index(struct data_added *added, const char *name, struct ls_error *error);
const struct data_added_token *data_added_of_id(const struct data_added *added, int32_t id);
const struct data_added_token *data_added_of_text(const struct data_added *added, const char *text);
/* Makes both sets; what tokens match must be there. */
int data_added_finish(struct data_added *added, const char *name, struct ls_error *error);
void data_added_release(struct data_added *added);
/* Where a search is: the last match was [begin, end). */
struct data_added_cursor {
    size_t from, begin, end;
    const struct data_added_token *token;
};
/* The next match in text[bytes], the leftmost and of those the longest; false: none. special:
 * special tokens are found too. */
bool data_added_next(const struct data_added_set *set, const unsigned char *text, size_t bytes,
                     bool special, struct data_added_cursor *cursor);

/* ---- normalizers (normalize.c) --------------------------------------------------------------- */

enum { DATA_STEPS_MAX = 16 };
struct data_normalizer {
    enum { DATA_PREPEND, DATA_REPLACE, DATA_UNICODE_FORM, DATA_LOWERCASE, DATA_STRIP_ACCENTS } kind;
    char *text; /* what is put in front, or in the place of a match */
    size_t text_bytes;
    struct data_splitter *splitter; /* what is replaced */
    int form;                       /* utf8proc's options */
};
struct data_normalizers {
    struct data_normalizer step[DATA_STEPS_MAX];
    int count;
};
/* Scratch of one thread: the text before and after a step, and states of patterns. */
struct data_normal_scratch {
    struct ls_text text[2];
    void *state[DATA_STEPS_MAX];
    int32_t *codes; /* of characters */
    size_t codes_room;
};
int data_normal_scratch_init(struct data_normal_scratch *scratch,
                             const struct data_normalizers *normalizers, struct ls_error *error);
void data_normal_scratch_release(struct data_normal_scratch *scratch);
/* *out = text normalized, in the scratch or where it was. begins: nothing of the text came before,
 * so that prefixes are put. *first: bytes at the beginning of the text, whole characters; becomes
 * the bytes at the beginning of *out that they were made into, 0 if all of them were taken out. */
int data_normalize(const struct data_normalizers *normalizers, struct data_normal_scratch *scratch,
                   struct data_string text, bool begins, struct data_string *out, size_t *first,
                   struct ls_error *error);
void data_normalizers_release(struct data_normalizers *normalizers);

/* ---- tokenizers ------------------------------------------------------------------------------ */

struct data_pre_tokenizer {
    enum { DATA_SPLIT, DATA_METASPACE, DATA_PREFIX_SPACE } kind;
    struct data_splitter *splitter;
    enum {
        DATA_ISOLATED,
        DATA_REMOVED,
        DATA_CONTIGUOUS,
        DATA_WITH_PREVIOUS,
        DATA_WITH_NEXT
    } behavior;
    bool invert;                                          /* what lies between matches */
    enum { DATA_NEVER, DATA_FIRST, DATA_ALWAYS } prepend; /* the meta space */
    bool parts;  /* each meta space begins a piece; a scanned pattern's pieces stay as they are */
    bool digits; /* the splitter finds a number */
};
#define DATA_META_SPACE "\xe2\x96\x81"

enum { DATA_AROUND_MAX = 8, DATA_BYTE_EOD = 256 /* DATA_PAIR_EOD, of is_byte */ };
struct ls_tokenizer {
    char *name, *spec;
    struct ls_tokenizer_file files[LS_TOKENIZER_FILES_MAX];
    int files_count;
    struct ls_digest digest; /* of those that say what ids mean */
    bool is_byte;
    /* The rest: unless is_byte. */
    int64_t vocabulary;
    int32_t bos, eos, pad, eod;
    struct data_bpe bpe;
    struct data_added added;
    struct data_normalizers normalizers;
    struct data_pre_tokenizer pre[DATA_STEPS_MAX];
    int pre_count;
    int32_t before[DATA_AROUND_MAX], after[DATA_AROUND_MAX]; /* ids around a text */
    int before_count, after_count;
    bool may_cut;       /* texts may be encoded in parts */
    bool split_special; /* special tokens in a text are ordinary, whatever its caller says */
    /* Decoding (detokenizer.c). */
    struct data_strings text; /* [vocabulary] */
    char strip;               /* this character, at most strip_count of them, is taken from the */
    int strip_count;          /* beginning of a text */
    bool strip_meta;          /* all meta spaces are taken from the first token */
};
/* Frees what it holds. */
void data_tokenizer_release(struct ls_tokenizer *tokenizer);
/* What the files beside a tokenizer.json say (ls_tokenizer_settings_read); root may be NULL. */
struct data_settings {
    const char *name; /* for error texts */
    struct json_t *root;
};
/* Fills what files say (tokenizer_json.c, ranks.c). Name, spec and files are the caller's. */
int data_tokenizer_parse_json(struct ls_tokenizer *tokenizer, struct data_named_text file,
                              struct data_settings settings, struct ls_error *error);
int data_tokenizer_parse_ranks(struct ls_tokenizer *tokenizer, const char *pattern,
                               struct data_named_text file, struct ls_error *error);
/* tokenizer_added.c: the special tokens of vocab.json and merges.txt, as GPT2Tokenizer of
 * transformers has them: DATA_PAIR_EOD, and those that the settings name. */
int data_pair_tokens(struct ls_tokenizer *tokenizer, struct data_settings settings,
                     struct ls_error *error);
/* LS_ENOTSUP: what the settings have there the two files cannot say. */
int data_pair_refuse(const char *path, const char *where, struct ls_error *error);
/* tokenizer_config.c: which tokens begin and end texts; and what ends a document. */
int data_tokenizer_configure(struct ls_tokenizer *tokenizer, struct data_settings settings,
                             struct ls_error *error);
/* Whether texts may be cut at data_split_last_cut. */
bool data_tokenizer_may_cut(const struct ls_tokenizer *tokenizer);
/* How tokens become text (detokenizer.c). */
struct data_decoding {
    const char *replaced, *with; /* in each token; NULL: nothing */
    bool byte_fallback;          /* <0xXX> is that byte */
    bool byte_level;             /* an added token whose characters all stand for bytes is these */
};
int data_decoding_init(struct ls_tokenizer *tokenizer, const struct data_decoding *decoding,
                       struct ls_error *error);

#endif
