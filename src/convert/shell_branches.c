/* Which lines of a script run: the branches of its if and of its case, and of commands between &&
 * and || those that the ones before them let run.
 *
 * A condition is one of [ A = B ], [ A != B ], [ A -eq B ] and its like, [ -z A ], [ -n A ], true
 * and false, with test or [[ in place of [, with ! before it, and several of them between && and
 * ||; [ A ] is [ -n A ]. Others, and those of a variable that is not known, are open: what such a
 * branch sets is not known. Commands that only set variables or say something succeed.
 */
#include "convert/convert_private.h"

#include <ctype.h>
#include <string.h>

enum { TEST_WORDS = 8 };

static enum convert_truth opposite(enum convert_truth a)
{
    return a == CONVERT_OPEN ? a : a == CONVERT_TRUE ? CONVERT_FALSE : CONVERT_TRUE;
}

static enum convert_truth both(enum convert_truth a, enum convert_truth b)
{
    if (a == CONVERT_FALSE || b == CONVERT_FALSE)
        return CONVERT_FALSE;
    return a == CONVERT_TRUE && b == CONVERT_TRUE ? CONVERT_TRUE : CONVERT_OPEN;
}

static enum convert_truth either(enum convert_truth a, enum convert_truth b)
{
    return opposite(both(opposite(a), opposite(b)));
}

/* ---- conditions ----------------------------------------------------------------------------- */

/* A condition under way. */
struct test {
    const char *const *words; /* without the brackets */
    size_t count;
    bool bracket; /* no command: between [ and ], [[ and ]], or behind test */
    bool doubled; /* in [[ ]], where a variable without a text is a word all the same */
    char *cause;  /* [64]: of a word that is not known */
};

/* Whether the word is known; otherwise it is the cause if it is a variable alone. */
static bool is_known(const struct test *t, const char *word)
{
    const char *name = word + 1 + (word[0] == '$' && word[1] == '{');
    size_t length = 0;
    if (!strpbrk(word, "$`"))
        return true;
    while (isalnum((unsigned char)name[length]) || name[length] == '_')
        length++;
    if (word[0] == '$' && length > 0 && length < 60 && !name[length + (name[length] == '}')])
        snprintf(t->cause, 64, "$%.*s", (int)length, name);
    return false;
}

static enum convert_truth compare_numbers(const char *a, const char *how, const char *b)
{
    double x, y;
    if (!convert_number(a, &x) || !convert_number(b, &y))
        return CONVERT_OPEN;
    bool is = strcmp(how, "-eq") == 0   ? x == y
              : strcmp(how, "-ne") == 0 ? x != y
              : strcmp(how, "-gt") == 0 ? x > y
              : strcmp(how, "-ge") == 0 ? x >= y
              : strcmp(how, "-lt") == 0 ? x < y
                                        : x <= y;
    return is ? CONVERT_TRUE : CONVERT_FALSE;
}

/* The script's own name, by which it sees whether it is run or read by another one. */
static bool is_script(const char *word)
{
    return convert_among(word, "$0|${0}|$BASH_SOURCE|${BASH_SOURCE}|${BASH_SOURCE[0]}");
}

static enum convert_truth compare(const struct test *t)
{
    const char *a = t->words[0], *how = t->words[1], *b = t->words[2];
    bool equal = convert_among(how, "=|==");
    if (is_script(a) && is_script(b) && convert_among(how, "=|==|!="))
        return equal ? CONVERT_TRUE : CONVERT_FALSE;
    if (!convert_among(how, "=|==|!=|-eq|-ne|-gt|-ge|-lt|-le") || strpbrk(b, "*?[")) /* a pattern */
        return CONVERT_OPEN;
    if (!is_known(t, a) || !is_known(t, b))
        return CONVERT_OPEN;
    if (how[0] == '-')
        return compare_numbers(a, how, b);
    return (strcmp(a, b) == 0) == equal ? CONVERT_TRUE : CONVERT_FALSE;
}

static enum convert_truth is_empty(const struct test *t, const char *word)
{
    if (!*word)
        return CONVERT_TRUE;
    return is_known(t, word) ? CONVERT_FALSE : CONVERT_OPEN;
}

/* -z, -n, -f: in [[ ]] the word behind it is a variable without a text if it is missing. */
static bool is_operator(const char *word)
{
    return word[0] == '-' && word[1] && !word[2];
}

static enum convert_truth truth_of_brackets(const struct test *t)
{
    const char *how = t->count > 0 ? t->words[0] : "";
    if (t->count == 3)
        return compare(t);
    if (t->count < 2 && !(t->doubled && is_operator(how)))
        return opposite(is_empty(t, how));
    if (t->count > 2 || (strcmp(how, "-z") != 0 && strcmp(how, "-n") != 0))
        return CONVERT_OPEN;
    enum convert_truth empty = is_empty(t, t->count > 1 ? t->words[1] : "");
    return how[1] == 'z' ? empty : opposite(empty);
}

static enum convert_truth truth_of(struct test t)
{
    static const char *const successful = ":|cd|echo|printf|export|local|declare|readonly|set";
    bool negated = t.count > 0 && strcmp(t.words[0], "!") == 0;
    enum convert_truth truth = CONVERT_OPEN;
    t.words += negated;
    t.count -= negated;
    if (t.bracket)
        truth = truth_of_brackets(&t);
    else if (t.count == 1 && strcmp(t.words[0], "true") == 0)
        truth = CONVERT_TRUE;
    else if (t.count == 1 && strcmp(t.words[0], "false") == 0)
        truth = CONVERT_FALSE;
    else if (t.count > 0 && convert_among(t.words[0], successful))
        truth = CONVERT_TRUE;
    return negated ? opposite(truth) : truth;
}

/* The truth of a command that has words, or of a part of one between [[ and ]]. */
static enum convert_truth truth_of_command(struct convert_branches *b, char *cause,
                                           const struct convert_words *command)
{
    const char *words[TEST_WORDS]; /* of more, the last one is the last here */
    size_t count = 0;
    for (size_t i = 0; i < command->count; i++) {
        count += count < TEST_WORDS;
        words[count - 1] = command->at[i].text;
    }
    bool first = convert_among(words[0], "[|[[|test");
    b->doubled |= first && strcmp(words[0], "[[") == 0;
    struct test t = {words + first, count - first, first || b->doubled, b->doubled, cause};
    if (t.bracket && t.count > 0 && convert_among(t.words[t.count - 1], "]|]]")) {
        b->doubled = false;
        t.count--;
    }
    return truth_of(t);
}

/* ---- lists ---------------------------------------------------------------------------------- */

static struct convert_branch *level_of(struct convert_branches *b)
{
    return &b->level[b->depth <= CONVERT_BRANCHES ? b->depth : CONVERT_BRANCHES + 1];
}

/* A command of the list has ended, and the list with it if nothing joins another one to it. */
static void add_to_list(struct convert_branch *level, enum convert_truth truth,
                        enum convert_joint joint)
{
    level->status = level->joint == CONVERT_AND  ? both(level->status, truth)
                    : level->joint == CONVERT_OR ? either(level->status, truth)
                                                 : truth;
    level->joint = joint;
}

void convert_branches_command(struct convert_branches *b, const struct convert_words *words,
                              enum convert_truth assigned, enum convert_joint joint)
{
    struct convert_branch *level = level_of(b);
    bool none = words->count == 0 && !assigned, piped = b->piped;
    if (none && joint == CONVERT_END) /* an empty line, which may be behind && too */
        return;
    b->piped = joint == CONVERT_PIPE;
    if (none) {
        level->joint = joint == CONVERT_PIPE ? level->joint : joint;
        return;
    }
    if (level->joint == CONVERT_END)
        level->list_cause[0] = '\0';
    enum convert_truth truth =
        words->count > 0 ? truth_of_command(b, level->list_cause, words) : assigned;
    if (!b->piped) /* the last command of several is the one that counts */
        add_to_list(level, piped ? CONVERT_OPEN : truth, joint);
}

/* Whether the next command of the list runs, as far as the list says it. */
static enum convert_truth list_runs(const struct convert_branch *level)
{
    return level->joint == CONVERT_AND  ? level->status
           : level->joint == CONVERT_OR ? opposite(level->status)
                                        : CONVERT_TRUE;
}

/* ---- branches ------------------------------------------------------------------------------- */

/* Another branch begins, which runs if none before it did and the condition holds. */
static void branch(struct convert_branches *b, enum convert_truth condition)
{
    struct convert_branch *level = level_of(b);
    b->testing = false;
    if (b->depth == 0 || level->group)
        return;
    level->runs = both(opposite(level->ran), condition);
    level->ran = either(level->ran, condition);
    if (level->list_cause[0])
        memcpy(level->cause, level->list_cause, sizeof level->cause);
    level->list_cause[0] = '\0';
}

static void begin(struct convert_branches *b, enum convert_truth runs, bool group)
{
    b->depth++;
    *level_of(b) = (struct convert_branch){.runs = runs, .status = CONVERT_OPEN, .group = group};
}

static void begin_choice(struct convert_branches *b)
{
    begin(b, CONVERT_OPEN, false);
    level_of(b)->choice = true;
}

void convert_branches_group(struct convert_branches *b, enum convert_truth runs)
{
    begin(b, runs, true);
    b->doubled = b->piped = false;
}

/* What began last is a command of the list that it is in. */
static void end(struct convert_branches *b)
{
    const struct convert_branch *inner = level_of(b);
    enum convert_truth truth = inner->group ? inner->status : CONVERT_OPEN;
    b->depth--;
    add_to_list(level_of(b), truth, CONVERT_END);
}

/* Whether the word is, or ends, the pattern of a case. */
static bool is_pattern(struct convert_branches *b, const char *word)
{
    size_t length = strlen(word);
    return level_of(b)->choice && length > 0 && word[length - 1] == ')' &&
           strncmp(word, "$(", 2) != 0;
}

bool convert_branches_word(struct convert_branches *b, const char *word)
{
    bool test = strcmp(word, "if") == 0 || strcmp(word, "elif") == 0;
    bool ends = convert_among(word, "fi|esac") || (strcmp(word, "}") == 0 && level_of(b)->group);
    if (strcmp(word, "if") == 0)
        begin(b, CONVERT_TRUE, false);
    else if (strcmp(word, "then") == 0)
        branch(b, level_of(b)->status);
    else if (strcmp(word, "else") == 0)
        branch(b, CONVERT_TRUE);
    else if (strcmp(word, "case") == 0)
        begin_choice(b);
    else if (strcmp(word, "{") == 0)
        begin(b, CONVERT_TRUE, true);
    else if (ends && b->depth > 0)
        end(b);
    else if (!ends && !test && !is_pattern(b, word) && strcmp(word, "do") != 0)
        return false;
    b->testing |= test;
    b->doubled = b->piped = false;
    if (!ends)
        level_of(b)->joint = CONVERT_END;
    if (test)
        level_of(b)->status = CONVERT_OPEN;
    return strcmp(word, "case") != 0;
}

enum convert_truth convert_branches_run(const struct convert_branches *b, const char **cause)
{
    enum convert_truth run = b->depth > CONVERT_BRANCHES ? CONVERT_OPEN : CONVERT_TRUE;
    if (cause)
        *cause = "";
    for (int i = 0; i <= b->depth && i <= CONVERT_BRANCHES; i++) {
        const struct convert_branch *level = &b->level[i];
        enum convert_truth runs = i > 0 ? level->runs : CONVERT_TRUE, listed = list_runs(level);
        run = both(run, both(runs, listed));
        if (cause && runs == CONVERT_OPEN)
            *cause = level->cause;
        if (cause && listed == CONVERT_OPEN)
            *cause = level->list_cause;
    }
    return run;
}
