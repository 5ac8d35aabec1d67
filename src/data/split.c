/* GPT-2's pre-tokenizer: the pattern that cuts text into pieces before byte-pair merging. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/data_private.h"

#include <pcre2.h>
#include <stdlib.h>

/* White space is spelled out: PCRE2's \s takes U+180E, which the reference tokenizers do not. */
#define SPACE                                                                                      \
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"                 \
    "\\x{202f}\\x{205f}\\x{3000}"
/* The reference tokenizers classify by Unicode 16. Older PCRE2 (10.42: Unicode 14) does not know
 * these letters and numbers yet; naming those it knows is harmless. */
#define LETTER                                                                                     \
    "A-Za-z\\p{L}"                                                                                 \
    "\\x{1c89}\\x{1c8a}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{105f3}"                \
    "\\x{10d4a}-\\x{10d65}\\x{10d6f}-\\x{10d85}\\x{10ec2}-\\x{10ec4}\\x{1123f}\\x{11240}"          \
    "\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}\\x{113d1}\\x{113d3}" \
    "\\x{11bc0}-\\x{11be0}\\x{11f02}\\x{11f04}-\\x{11f10}\\x{11f12}-\\x{11f33}\\x{1342f}"          \
    "\\x{13441}-\\x{13446}\\x{13460}-\\x{143fa}\\x{16100}-\\x{1611d}\\x{16d40}-\\x{16d6c}"         \
    "\\x{18cff}\\x{1b132}\\x{1b155}\\x{1df25}-\\x{1df2a}\\x{1e030}-\\x{1e06d}"                     \
    "\\x{1e4d0}-\\x{1e4eb}\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}"          \
    "\\x{31350}-\\x{323af}"
#define NUMBER                                                                                     \
    "0-9\\p{N}"                                                                                    \
    "\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}\\x{11f50}-\\x{11f59}"         \
    "\\x{16130}-\\x{16139}\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}\\x{1d2c0}-\\x{1d2d3}"         \
    "\\x{1e4f0}-\\x{1e4f9}\\x{1e5f1}-\\x{1e5fa}"

static const char pattern[] = "'s|'t|'re|'ve|'m|'ll|'d"
                              "| ?[" LETTER "]+"
                              "| ?[" NUMBER "]+"
                              "| ?[^" SPACE LETTER NUMBER "]+"
                              "|[" SPACE "]+(?![^" SPACE "])"
                              "|[" SPACE "]+";

struct data_splitter {
    pcre2_code *code;
    bool compiled; /* to machine code; else the pattern is interpreted */
};
struct data_split_state {
    pcre2_match_data *match;
};

int data_splitter_new(struct data_splitter **out, struct ls_error *error)
{
    struct data_splitter *splitter = calloc(1, sizeof *splitter);
    if (!splitter)
        return ls_error_set(error, LS_ENOMEM, "no memory for the tokenizer");
    int code;
    PCRE2_SIZE offset;
    splitter->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &code, &offset, NULL);
    if (!splitter->code) {
        PCRE2_UCHAR message[160] = "";
        pcre2_get_error_message(code, message, sizeof message);
        free(splitter);
        return ls_error_set(error, LS_ENOTSUP,
                            "PCRE2 cannot compile the GPT-2 pattern (at %zu: %s); a PCRE2 with "
                            "Unicode support is needed",
                            (size_t)offset, (const char *)message);
    }
    splitter->compiled = pcre2_jit_compile(splitter->code, PCRE2_JIT_COMPLETE) == 0;
    *out = splitter;
    return LS_OK;
}

void data_splitter_free(struct data_splitter *splitter)
{
    if (!splitter)
        return;
    pcre2_code_free(splitter->code);
    free(splitter);
}

int data_split_state_new(const struct data_splitter *splitter, struct data_split_state **out,
                         struct ls_error *error)
{
    struct data_split_state *state = calloc(1, sizeof *state);
    if (state)
        state->match = pcre2_match_data_create_from_pattern(splitter->code, NULL);
    if (!state || !state->match) {
        free(state);
        return ls_error_set(error, LS_ENOMEM, "no memory for the tokenizer");
    }
    *out = state;
    return LS_OK;
}

void data_split_state_free(struct data_split_state *state)
{
    if (!state)
        return;
    pcre2_match_data_free(state->match);
    free(state);
}

size_t data_split_next(const struct data_splitter *splitter, struct data_split_state *state,
                       const unsigned char *text, size_t bytes, size_t start)
{
    int rc = splitter->compiled
                 ? pcre2_jit_match(splitter->code, text, bytes, start, 0, state->match, NULL)
                 : pcre2_match(splitter->code, text, bytes, start, PCRE2_NO_UTF_CHECK, state->match,
                               NULL);
    if (rc < 0)
        return 0;
    return pcre2_get_ovector_pointer(state->match)[1];
}

/* A piece is white space, or ends in a character that is none; so no piece goes on from a visible
 * ASCII character to white space, and none looks further than that. */
size_t data_split_last_cut(const unsigned char *text, size_t bytes)
{
    for (size_t i = bytes; i-- > 1;) {
        bool space = text[i] == ' ' || (text[i] >= 9 && text[i] <= 13);
        if (space && text[i - 1] > 32 && text[i - 1] < 127)
            return i;
    }
    return 0;
}
