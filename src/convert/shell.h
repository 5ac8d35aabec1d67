/* What the two halves of the reader of shell scripts share: its words, and its commands. */
#ifndef CONVERT_SHELL_H
#define CONVERT_SHELL_H

#include "convert/convert_private.h"

enum { SHELL_WORD_BYTES = 1 << 16, SHELL_NAME_BYTES = 128, SHELL_DOCUMENTS_MAX = 4 };
#define SHELL_BETWEEN '\1' /* the words of a variable */
#define SHELL_MARK    '\2' /* on both sides of a word's line, ahead of it */
static const char shell_marks[] = {SHELL_BETWEEN, SHELL_MARK, CONVERT_DOUBTED, '\0'};
static const char shell_control[] = "expected text: a control character";

/* A here-document whose lines begin behind this one. */
struct shell_document {
    char end[64]; /* the line that ends it */
    bool tabs;    /* that line may begin with them */
};

struct shell {
    struct convert_entries *entries;    /* of the source */
    struct convert_entries variables;   /* words with SHELL_MARK and SHELL_BETWEEN */
    struct convert_words command, best; /* that is read, and with the most --arguments so far */
    const char *name, *text;
    size_t at, bytes;
    int line;
    struct shell_document document[SHELL_DOCUMENTS_MAX]; /* that this line begins */
    int documents;
    bool passed_over; /* some document was */
    char *word;       /* [SHELL_WORD_BYTES], under way */
    size_t used;
    bool any;                         /* a word is under way, though it may be empty */
    int handed_on;                    /* how many shells and functions hand this text on */
    struct convert_entries functions; /* their bodies, which are read where they are called */
    char function[SHELL_NAME_BYTES];  /* whose body is passed over */
    size_t body;                      /* where that begins; 0: none does */
    int body_line, body_depth;
    size_t called;       /* bytes of bodies that have been read */
    size_t calls;        /* of functions */
    size_t sole;         /* of these one behind an open condition that alone trains; 0: none does */
    bool trained;        /* a command that may run did */
    bool called_program; /* and that was no mere list of arguments */
    struct convert_branches branches;
    enum convert_truth assigned; /* of the command: as convert_branches_command has it */
    int mark;                    /* its line in the variable that it comes from; 0 for none */
    const struct ls_convert_options *options;
    struct ls_error *error;
    int status;
};

/* An error at the line that is read. */
void shell_fail(struct shell *s, const char *what);
/* The character that so many are ahead of, 0 at the end; and the next one, which is read. */
char shell_peek(const struct shell *s, size_t ahead);
char shell_take(struct shell *s);
/* The value of a variable, with SHELL_MARK and SHELL_BETWEEN; that of the caller wins; NULL for
 * none. */
const char *shell_variable(const struct shell *s, const char *name);
/* The variable has the text from here on, as far as this runs. Frees the text. */
void shell_variable_becomes(struct shell *s, const char *name, char *text);
/* One character, or what it begins, of a word outside of quotes. */
void shell_word_part(struct shell *s);
/* A variable's text into the word under way. Outside of quotes blanks end words, but for those of a
 * $(command), as do the ends of an array's words in either. A word that begins ahead of the text
 * keeps its own line. */
void shell_expand(struct shell *s, const char *text, bool quoted);
/* The word under way ends, and joins the command. */
void shell_flush(struct shell *s);

#endif
