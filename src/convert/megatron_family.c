/* Which family of models Megatron-LM's arguments describe: each argument asks for something that
 * layers have, and the families are asked who has it. */
#include "convert/megatron.h"

#include <string.h>

/* ---- what families have: sets of bits 1 << enum ls_arch -------------------------------------- */

enum { ALL = (1 << LS_ARCHES) - 1 };

/* A step of that name, or one that adds a bias. */
static unsigned with_step(const char *name, bool biased)
{
    unsigned set = 0;
    const char *step;
    bool bias;
    for (int arch = 0; arch < LS_ARCHES; arch++)
        for (int i = 0; (step = ls_family_step((enum ls_arch)arch, i, &bias)); i++)
            if (strcmp(step, name) == 0 && (bias || !biased))
                set |= 1u << arch;
    return set;
}

static unsigned with_activation(enum ls_activation act)
{
    unsigned set = 0;
    for (int arch = 0; arch < LS_ARCHES; arch++)
        if (ls_family_of((enum ls_arch)arch)->acts & 1u << act)
            set |= 1u << arch;
    return set;
}

static unsigned with_key(const char *key)
{
    unsigned set = 0;
    for (int arch = 0; arch < LS_ARCHES; arch++)
        if (ls_family_reads((enum ls_arch)arch, key))
            set |= 1u << arch;
    return set;
}

/* ---- the choice ----------------------------------------------------------------------------- */

struct choice {
    struct convert *c;
    unsigned fits; /* families that have all that was asked for */
};

/* Those that have it stay. If there are none, their argument is lost, with those that fit the rest.
 */
static bool ask(struct choice *choice, unsigned having, const char *theirs, const char *what)
{
    char fitting[256] = "";
    if (choice->fits & having) {
        choice->fits &= having;
        return true;
    }
    for (int arch = 0; arch < LS_ARCHES; arch++) {
        size_t used = strlen(fitting);
        if (choice->fits & 1u << arch)
            snprintf(fitting + used, sizeof fitting - used, "%s%s", used ? ", " : "",
                     ls_arch_name((enum ls_arch)arch));
    }
    convert_lose(choice->c, theirs, ASKED, "%s: not in a family that fits the other arguments (%s)",
                 what, fitting);
    return false;
}

/* Rotary positions, or learned ones; and what goes with them in every family. */
static const char *ask_positions(struct choice *choice)
{
    static const char *const type = "--position-embedding-type";
    static const char *const old = "--use-rotary-position-embeddings";
    struct convert *c = choice->c;
    const char *positions = convert_word(c, type, "learned_absolute");
    bool rotary = convert_find(c, old) || convert_among(positions, "rope|yarn");
    bool rms = strcmp(convert_word(c, "--normalization", "LayerNorm"), "RMSNorm") == 0;
    if (!rotary && convert_find(c, "--no-position-embedding"))
        convert_lose(c, "--no-position-embedding", "model.*nope*", "every family has positions");
    else if (!rotary && strcmp(positions, "learned_absolute") != 0)
        convert_lose(c, type, "model.position*|*alibi*|*: *relative*",
                     "%s is not here: positions are learned or rotary", positions);
    choice->fits &= rotary ? with_step("rope", false) : ~with_step("rope", false);
    ask(choice, with_step(rms ? "rmsnorm" : "layernorm", false), "--normalization",
        convert_word(c, "--normalization", "LayerNorm (the default there)"));
    return rotary && !convert_find(c, type) ? old : type;
}

static void ask_activation(struct choice *choice)
{
    static const struct {
        const char *theirs, *what, *ours;
        enum ls_activation act;
    } rows[] = {{"--swiglu", "SwiGLU", "swiglu", LS_ACT_SWIGLU},
                {"--openai-gelu", "GELU", "gelu_tanh", LS_ACT_GELU_TANH},
                {"--onnx-safe", "GELU", "gelu_erf", LS_ACT_GELU_ERF},
                {"--no-bias-gelu-fusion", "GELU", "gelu_erf", LS_ACT_GELU_ERF}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (convert_find(choice->c, rows[i].theirs)) {
            if (ask(choice, with_activation(rows[i].act), rows[i].theirs, rows[i].what))
                convert_keep(choice->c, "model.activation", rows[i].theirs, "%s", rows[i].ours);
            return;
        }
    ask(choice, with_activation(LS_ACT_GELU_TANH), "--swiglu", "it is not given, GELU");
}

static void ask_biases(struct choice *choice)
{
    static const char *const off = "--disable-bias-linear";
    struct convert *c = choice->c;
    unsigned rows = with_step("row-parallel linear", true);
    unsigned columns = with_step("column-parallel linear", true) & ~rows;
    if (!convert_find(c, off)) {
        ask(choice, rows, off, "it is not given, biases of linear layers");
        return;
    }
    if (choice->fits & ~rows)
        choice->fits &= ~rows;
    else
        convert_lose(c, off, "model.*norm*bias*",
                     "model.bias=false leaves out the biases of LayerNorm too, which stay there");
    if (convert_find(c, "--add-qkv-bias"))
        ask(choice, columns, "--add-qkv-bias", "biases of queries, keys and values alone");
    else
        convert_keep(c, "model.bias", off, "false");
    if (!convert_find(c, "--add-qkv-bias") && choice->fits & ~columns)
        choice->fits &= ~columns;
}

/* "(127,0)" are 128 tokens, the query's own included. */
static void ask_window(struct choice *choice)
{
    static const char *const size = "--window-size", *const skip = "--window-attn-skip-freq";
    struct convert *c = choice->c;
    const char *text = convert_word(c, size, "");
    long long before, behind;
    if (!*text)
        return;
    text += *text == '(';
    if (sscanf(text, "%lld , %lld", &before, &behind) != 2 || before < -1 || behind > 0) {
        convert_fail(c, size, "expected (TOKENS,0): what a query sees before itself");
    } else if (before == -1) {
        convert_drop(c, size, "all tokens before, as here");
    } else if (ask(choice, with_key("window"), size, "a window of attention")) {
        convert_keep_int(c, "model.window", size, before + 1);
        if (!convert_find(c, skip) ||
            !ask(choice, with_key("window_layers"), skip, "a window in some blocks"))
            return;
        if (strcmp(convert_word(c, skip, ""), "2") == 0)
            convert_keep(c, "model.window_layers", skip, "even");
        else
            convert_choose(c, "model.window_layers", skip, convert_word(c, skip, ""));
    }
}

bool megatron_family(struct convert *c)
{
    /* Nothing in Megatron asks for these. */
    unsigned strange = with_step("scale", false) | with_step("norm of q and k", false) |
                       with_step("rmsnorm of 1 + weight", false);
    unsigned normed = with_step("norm of heads", false);
    struct choice choice = {c, ALL & ~strange};
    int arch = 0;
    const char *from = ask_positions(&choice);
    ask_activation(&choice);
    ask_biases(&choice);
    if (convert_find(c, "--qk-layernorm"))
        ask(&choice, normed, "--qk-layernorm", "norms of queries and keys");
    else if (choice.fits & ~normed)
        choice.fits &= ~normed;
    ask_window(&choice);
    while (!(choice.fits & 1u << arch))
        arch++;
    if (convert_find(c, from))
        convert_keep(c, "model.arch", from, "%s", ls_arch_name((enum ls_arch)arch));
    else
        convert_assume(c, "model.arch", from, "%s", ls_arch_name((enum ls_arch)arch));
    return ls_family_reads((enum ls_arch)arch, "rope_theta");
}
