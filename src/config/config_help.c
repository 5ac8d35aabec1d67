/* What a key means, where families of models have a say in it: {word} in a key's text stands for
 * what they say, so that a new family or preset is named everywhere at once. */
#include "config/config_private.h"

#include <stdarg.h>
#include <string.h>

struct help {
    const struct ls_config_key *key;
    char *text;
    size_t used;
};

__attribute__((format(printf, 2, 3))) static void put(struct help *help, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length =
        vsnprintf(help->text + help->used, LS_CONFIG_HELP_BYTES - help->used, format, arguments);
    va_end(arguments);
    LS_ASSERT(length >= 0 && help->used + (size_t)length < LS_CONFIG_HELP_BYTES);
    help->used += (size_t)length;
}

/* ---- what one family says -------------------------------------------------------------------- */

enum { SAID_BYTES = 96 };

static void say_tied(const struct ls_family *family, char said[SAID_BYTES])
{
    snprintf(said, SAID_BYTES, "%s", family->tied ? "true" : "false");
}

static void say_bias(const struct ls_family *family, char said[SAID_BYTES])
{
    snprintf(said, SAID_BYTES, "%s", family->bias ? "true" : "false");
}

static void say_activation(const struct ls_family *family, char said[SAID_BYTES])
{
    const struct ls_word *words = ls_config_key_of("model.activation")->words;
    snprintf(said, SAID_BYTES, "%s", ls_word_of(words, (int)family->act));
}

static void say_layers(enum ls_layers layers, char said[SAID_BYTES])
{
    const struct ls_word *words = ls_config_key_of("model.window_layers")->words;
    snprintf(said, SAID_BYTES, "%s", ls_word_of(words, (int)layers));
}

static void say_window_layers(const struct ls_family *family, char said[SAID_BYTES])
{
    say_layers(family->window_layers, said);
}

static void say_rope_layers(const struct ls_family *family, char said[SAID_BYTES])
{
    say_layers(family->rope_layers, said);
}

static void say_ffn(const struct ls_family *family, char said[SAID_BYTES])
{
    snprintf(said, SAID_BYTES, "%ld", (long)family->ffn.times);
    if (family->ffn.over > 1)
        ls_string_add(said, SAID_BYTES, "/", "%ld", (long)family->ffn.over);
    ls_string_add(said, SAID_BYTES, " ", "channels");
    if (family->ffn.multiple > 1)
        ls_string_add(said, SAID_BYTES, " ", "rounded up to a multiple of %ld",
                      (long)family->ffn.multiple);
}

/* ---- what all say ---------------------------------------------------------------------------- */

static bool is_reader(const struct help *help, int arch)
{
    return ls_family_reads((enum ls_arch)arch, help->key->name + strlen("model."));
}

/* "true for gpt2; false for llama, mistral": each thing that is said, with those who say it. */
static void put_said(struct help *help,
                     void (*say)(const struct ls_family *family, char said[SAID_BYTES]))
{
    char said[LS_ARCHES][SAID_BYTES] = {""};
    const char *between = "";
    for (int a = 0; a < LS_ARCHES; a++)
        if (is_reader(help, a))
            say(ls_family_of((enum ls_arch)a), said[a]);
    for (int a = 0; a < LS_ARCHES; a++) {
        int first = 0;
        while (strcmp(said[first], said[a]) != 0)
            first++;
        if (first < a || !*said[a])
            continue;
        put(help, "%s%s for ", between, said[a]);
        between = "; ";
        for (int b = a; b < LS_ARCHES; b++)
            if (strcmp(said[b], said[a]) == 0)
                put(help, "%s%s", b > a ? ", " : "", ls_arch_name((enum ls_arch)b));
    }
}

static void put_families(struct help *help)
{
    for (int a = 0; a < LS_ARCHES; a++)
        put(help, "%s%s: %s", a ? "; " : "", ls_arch_name((enum ls_arch)a),
            ls_family_of((enum ls_arch)a)->what);
}

static void put_readers(struct help *help)
{
    const char *between = "";
    for (int a = 0; a < LS_ARCHES; a++)
        if (is_reader(help, a)) {
            put(help, "%s%s", between, ls_arch_name((enum ls_arch)a));
            between = ", ";
        }
}

static void put_presets(struct help *help)
{
    const char *name;
    for (int i = 0; (name = ls_config_preset_name(i)); i++)
        put(help, "%s%s", i ? ", " : "", name);
}

/* A word stands for what each family says, or for what is put. */
static const struct {
    const char *word;
    void (*say)(const struct ls_family *family, char said[SAID_BYTES]);
    void (*put)(struct help *help);
} words[] = {{"{tied}", say_tied, NULL},
             {"{bias}", say_bias, NULL},
             {"{activation}", say_activation, NULL},
             {"{ffn}", say_ffn, NULL},
             {"{window_layers}", say_window_layers, NULL},
             {"{rope_layers}", say_rope_layers, NULL},
             {"{families}", NULL, put_families},
             {"{readers}", NULL, put_readers},
             {"{presets}", NULL, put_presets}};

void ls_config_key_help(const struct ls_config_key *key, char text[LS_CONFIG_HELP_BYTES])
{
    struct help help = {.key = key, .text = text};
    *text = '\0';
    for (const char *at = key->help, *open; *at;) {
        open = strchr(at, '{');
        size_t plain = open ? (size_t)(open - at) : strlen(at), w = 0;
        put(&help, "%.*s", (int)plain, at);
        at += plain;
        if (!open)
            return;
        while (w < sizeof words / sizeof words[0] &&
               strncmp(open, words[w].word, strlen(words[w].word)) != 0)
            w++;
        LS_ASSERT(w < sizeof words / sizeof words[0]);
        if (words[w].say)
            put_said(&help, words[w].say);
        else
            words[w].put(&help);
        at += strlen(words[w].word);
    }
}
