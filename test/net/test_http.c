/* Requests to a web server and to S3: whatever fails once is tried again, whatever fails for good
 * is named, and no secret is. */
#include "../support/child.h"
#include "../support/s3_server.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"

#include <lockstep/net.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 1000, TRIES = 3 };

static struct s3_server *server;
static unsigned char data[BYTES];
static bool ends;

static bool ends_now(void *user)
{
    return ends;
}

/* Nothing is late on a busy machine. */
static const struct ls_net_options quick = {
    .tries = TRIES, .pause_s = 1e-3, .slow_s = 1000, .ends = ends_now};
/* A server that stalls is left soon, as often as it takes. */
static const struct ls_net_options hasty = {.tries = 1000, .pause_s = 1e-3, .slow_s = 1};

/* Bytes [first, first + count) of the object. */
static int get_with(const struct ls_net_options *options, const char *url, uint64_t first,
                    uint64_t count, unsigned char *out, struct ls_error *error)
{
    struct ls_server *at;
    int status = ls_server_open(&at, url, options, error);
    if (status)
        return status;
    struct ls_http_request request = {.method = "GET",
                                      .key = ls_server_key(at),
                                      .range_first = first,
                                      .range_bytes = count,
                                      .limit = count};
    status = ls_http_send(at, &request, error);
    if (!status) {
        assert_int_equal(request.bytes, count);
        assert_int_equal(request.whole, BYTES);
        assert_true(request.etag[0]);
        memcpy(out, request.text, count);
    }
    ls_http_request_release(&request);
    ls_server_close(at);
    return status;
}

static int get(const char *url, uint64_t first, uint64_t count, unsigned char *out,
               struct ls_error *error)
{
    return get_with(&quick, url, first, count, out, error);
}

static const char *where(bool s3)
{
    return s3 ? "s3://bucket/data/x.bin" : s3_server_url(server, "data/x.bin");
}

static void expect_good(bool s3, uint64_t first, uint64_t count)
{
    unsigned char out[BYTES];
    struct ls_error error = {0};
    assert_ok(get(where(s3), first, count, out, &error), error);
    assert_memory_equal(out, data + first, count);
}

static void expect_bad(const char *url, int code, const char *words)
{
    unsigned char out[BYTES];
    struct ls_error error = {0};
    assert_int_equal(get(url, 10, 20, out, &error), code);
    if (!strstr(error.text, words))
        fail_msg("%s: \"%s\" does not say \"%s\"", url, error.text, words);
    assert_null(strstr(error.text, "hunter2"));
}

static int setup(void **state)
{
    server = s3_server_start();
    for (int i = 0; i < BYTES; i++)
        data[i] = (unsigned char)(i * 7 + i / 256);
    s3_server_place_bytes(server, "data/x.bin", data, BYTES);
    setenv("NETRC", "/nonexistent", 1);
    return scratch_setup(state);
}

static int teardown(void **state)
{
    s3_server_stop(server);
    return scratch_teardown(state);
}

CASE_WITH(test_ranges, setup, teardown)
{
    for (int s3 = 0; s3 < 2; s3++) {
        expect_good(s3, 0, BYTES);
        expect_good(s3, 0, 1);
        expect_good(s3, 17, 500);
        expect_good(s3, BYTES - 1, 1);
    }
}

/* The first try fails, whatever the way: the second brings the bytes. */
CASE_WITH(test_a_failure_is_tried_again, setup, teardown)
{
    static const enum s3_failure kinds[] = {S3_BUSY, S3_DROP, S3_CUT, S3_SHIFT, S3_SHORT};
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        for (int s3 = 0; s3 < 2; s3++) {
            s3_server_fail(server, kinds[kind], 1, false);
            expect_good(s3, 17, 500);
            assert_int_equal(s3_server_requests(server), 2);
        }
}

CASE_WITH(test_a_stall_is_tried_again, setup, teardown)
{
    struct ls_error error = {0};
    unsigned char out[BYTES];
    s3_server_fail(server, S3_STALL, 1, false);
    assert_ok(get_with(&hasty, where(false), 17, 500, out, &error), error);
    assert_memory_equal(out, data + 17, 500);
    assert_in_range(s3_server_requests(server), 2, 1000);
    s3_server_fail(server, S3_SOUND, 0, false);
}

CASE_WITH(test_a_failure_that_stays_is_named, setup, teardown)
{
    static const struct {
        enum s3_failure how;
        int requests;
        const char *words;
    } cases[] = {
        {S3_BUSY, TRIES, "HTTP 503 SlowDown (for a test), tried 3 times"},
        {S3_WHOLE, 1, "the server does not serve ranges of a file: it answered 200 with all of it"},
        {S3_SHIFT, TRIES, "the server sends another range, tried 3 times"},
        {S3_SHORT, TRIES, "the server sends less than the range, tried 3 times"},
        {S3_REFUSE, 1, "HTTP 403 AccessDenied"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int s3 = 0; s3 < 2; s3++) {
            s3_server_fail(server, cases[i].how, 1, true);
            expect_bad(where(s3), LS_EIO, cases[i].words);
            expect_bad(where(s3), LS_EIO, "data/x.bin");
            assert_int_equal(s3_server_requests(server), 2 * cases[i].requests);
        }
    s3_server_fail(server, S3_SOUND, 0, false);
    expect_bad(s3_server_url(server, "data/none"), LS_EIO, "HTTP 404");
    expect_bad("s3://bucket/none", LS_EIO, "HTTP 404 NoSuchKey");
}

CASE_WITH(test_redirects, setup, teardown)
{
    s3_server_fail(server, S3_MOVED, 1, false);
    expect_good(false, 17, 500);
    assert_int_equal(s3_server_requests(server), 2);
    s3_server_fail(server, S3_ROUND, 1, true);
    expect_bad(where(false), LS_EIO, "redirects");
    assert_int_equal(s3_server_requests(server), 6);
}

/* Neither a server that says nothing nor a long pause holds up who has no time left. */
CASE_WITH(test_giving_up, setup, teardown)
{
    static const enum s3_failure kinds[] = {S3_STALL, S3_BUSY};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        s3_server_fail(server, kinds[i], 1, true);
        ends = true;
        expect_bad(where(false), LS_ESTOPPED, "given up");
        ends = false;
    }
}

/* A clock that stands, but for the pauses of this thread, which take no time: how long it paused
 * behind so many requests. */
enum { PAUSES = 9 };
static _Thread_local bool stands;
static double passed_s, pauses[PAUSES + 1];

WRAPPED(ls_now_s);
double __wrap_ls_now_s(void)
{
    return stands ? passed_s : __real_ls_now_s();
}

WRAPPED(nanosleep);
int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left)
{
    if (!stands)
        return __real_nanosleep(wanted, left);
    double seconds = (double)wanted->tv_sec + 1e-9 * (double)(wanted->tv_nsec + 1); /* it ends */
    assert_in_range(s3_server_requests(server), 1, PAUSES);
    pauses[s3_server_requests(server)] += seconds;
    passed_s += seconds;
    return 0;
}

/* By default half a second behind the first try, and twice as long behind each, up to 30. */
CASE_WITH(test_pauses_grow, setup, teardown)
{
    static const double expected[PAUSES + 1] = {0, 0.5, 1, 2, 4, 8, 16, 30, 30, 30};
    const struct ls_net_options many = {.tries = PAUSES + 1, .slow_s = 30};
    struct ls_http_request request = {.method = "GET", .limit = BYTES};
    struct ls_error error = {0};
    struct ls_server *at;
    assert_ok(ls_server_open(&at, where(true), &many, &error), error);
    request.key = ls_server_key(at);
    s3_server_fail(server, S3_BUSY, 1, true);
    stands = true;
    assert_int_equal(ls_http_send(at, &request, &error), LS_EIO);
    stands = false;
    assert_int_equal(s3_server_requests(server), PAUSES + 1);
    for (int i = 1; i <= PAUSES; i++)
        if (fabs(pauses[i] - expected[i]) > 1e-6)
            fail_msg("pause %d: %g s, expected %g", i, pauses[i], expected[i]);
    ls_http_request_release(&request);
    ls_server_close(at);
    s3_server_fail(server, S3_SOUND, 0, false);
}

/* ---- lists ----------------------------------------------------------------------------------- */

struct found {
    int count, stop_at;
    char keys[16][64];
    uint64_t bytes[16];
};

static int found_add(void *user, const char *key, uint64_t bytes, struct ls_error *error)
{
    struct found *found = user;
    assert_in_range(found->count, 0, 15);
    snprintf(found->keys[found->count], sizeof found->keys[0], "%s", key);
    found->bytes[found->count++] = bytes;
    return found->count == found->stop_at ? ls_error_set(error, LS_EDATA, "one is enough") : LS_OK;
}

static int list(const char *prefix, bool flat, struct found *found, struct ls_error *error)
{
    struct ls_server *at;
    found->count = 0;
    assert_int_equal(ls_server_open(&at, "s3://bucket", &quick, error), LS_OK);
    int status = ls_bucket_list(at, prefix, flat, found_add, found, error);
    ls_server_close(at);
    return status;
}

/* Keys come whole, whatever is in them, over pages of two. */
CASE_WITH(test_lists, setup, teardown)
{
    static const char *const keys[] = {"d/a b", "d/a%41+c", "d/e&f<g>", "d/h/i", "d/z\xc3\xa9"};
    struct found found = {0};
    struct ls_error error = {0};
    for (int i = 0; i < 5; i++)
        s3_server_place_bytes(server, keys[i], data, (size_t)i * 10);
    s3_server_fail(server, S3_SOUND, 0, false);
    assert_int_equal(list("d/", false, &found, &error), LS_OK);
    assert_int_equal(s3_server_requests(server), 3);
    assert_int_equal(found.count, 5);
    for (int i = 0; i < 5; i++) {
        int at = 0;
        while (at < 4 && strcmp(found.keys[at], keys[i]) != 0)
            at++;
        assert_string_equal(found.keys[at], keys[i]);
        assert_int_equal(found.bytes[at], i * 10);
    }
    assert_int_equal(list("d/", true, &found, &error), LS_OK);
    assert_int_equal(found.count, 4);
    assert_int_equal(list("none", false, &found, &error), LS_OK);
    assert_int_equal(found.count, 0);
    found.stop_at = 3;
    assert_int_equal(list("", false, &found, &error), LS_EDATA);
    assert_int_equal(found.count, 3);
    found.stop_at = 0;
    for (int n = 1; n <= 3; n++) { /* each page fails once */
        s3_server_fail(server, S3_CUT, n, false);
        assert_int_equal(list("d/", false, &found, &error), LS_OK);
        assert_int_equal(found.count, 5);
    }
    s3_server_fail(server, S3_REFUSE, 2, true);
    assert_int_equal(list("d/", false, &found, &error), LS_EIO);
    assert_non_null(strstr(error.text, "s3:ListBucket"));
    assert_int_equal(s3_server_faults(server), 0);
}

#define PAGE(text)   "<ListBucketResult>" text "</ListBucketResult>"
#define OBJECT(key)  "<Contents><Key>" key "</Key><Size>1</Size></Contents>"
#define NEXT(token)  "<NextContinuationToken>" token "</NextContinuationToken>"
#define ESCAPED(key) PAGE("<EncodingType>url</EncodingType>" OBJECT(key))

CASE_WITH(test_lists_that_are_none, setup, teardown)
{
    static const struct {
        const char *texts[4];
        const char *words;
    } cases[] = {
        {{""}, "no whole <ListBucketResult>"},
        {{"<html>hello</html>"}, "no whole <ListBucketResult>"},
        {{"<ListBucketResult>" OBJECT("d/x")}, "no whole <ListBucketResult>"},
        {{PAGE("<Contents><Key>d/x</Key>")}, "a <Contents> without an end"},
        {{PAGE("<Contents><Size>1</Size></Contents>" OBJECT("d/x"))}, "without a <Key>"},
        {{PAGE("<Contents><Key>d/x</Key></Contents>")}, "without a <Size>"},
        {{PAGE("<Contents><Key>d/x</Key><Size>-1</Size></Contents>")}, "without a <Size>"},
        {{PAGE(OBJECT("e/x"))}, "a <Key> that was not asked for"},
        {{ESCAPED("d/%4")}, "a % that begins no escape"},
        {{ESCAPED("d/%g0")}, "a % that begins no escape"},
        {{ESCAPED("d/%00")}, "a % that begins no escape"},
        {{PAGE(NEXT(""))}, "an unusable <NextContinuationToken>"},
        {{PAGE("<IsTruncated>true</IsTruncated>")}, "without a <NextContinuationToken>"},
        {{PAGE(OBJECT("d/x") NEXT("a"))}, "pages without an end"},
        {{PAGE(NEXT("a")), PAGE(NEXT("b"))}, "pages without an end"},
        {{PAGE(NEXT("a")), PAGE(NEXT("b")), PAGE(NEXT("c"))}, "pages without an end"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct found found = {0};
        struct ls_error error = {0};
        int count = 0;
        while (cases[i].texts[count])
            count++;
        s3_server_answer_lists(server, cases[i].texts, count);
        assert_int_equal(list("d/", false, &found, &error), LS_EIO);
        if (!strstr(error.text, cases[i].words) || !strstr(error.text, "/bucket: "))
            fail_msg("case %zu: \"%s\" does not say \"%s\"", i, error.text, cases[i].words);
    }
    static const char *const good[] = {PAGE(OBJECT("d/%zz")), ESCAPED("d/%c3%A9"), PAGE(NEXT("a")),
                                       PAGE("")};
    struct found found = {0};
    struct ls_error error = {0};
    s3_server_answer_lists(server, good, 1);
    assert_int_equal(list("d/", false, &found, &error), LS_OK);
    assert_string_equal(found.keys[0], "d/%zz"); /* nobody said that it is escaped */
    s3_server_answer_lists(server, good + 1, 1);
    assert_int_equal(list("d/", false, &found, &error), LS_OK);
    assert_string_equal(found.keys[0], "d/\xc3\xa9");
    s3_server_answer_lists(server, good + 2, 2);
    assert_int_equal(list("d/", false, &found, &error), LS_OK);
    assert_int_equal(found.count, 0);
}

/* ---- who asks -------------------------------------------------------------------------------- */

CASE_WITH(test_credentials_of_a_file, setup, teardown)
{
    static const char file[] = "# mine\n[other]\naws_access_key_id = x\naws_secret_access_key=y\n"
                               "[ default ]\r\naws_access_key_id=AKIDEXAMPLE\r\n"
                               " aws_secret_access_key = wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY\n"
                               "region = nowhere\n";
    const char *path = scratch_path(*state, "credentials");
    scratch_write(path, file, sizeof file - 1);
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_SECRET_ACCESS_KEY");
    unsetenv("AWS_SESSION_TOKEN");
    unsetenv("AWS_PROFILE");
    setenv("HOME", "/nonexistent", 1);
    expect_bad(where(true), LS_ECONFIG, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
    setenv("AWS_SHARED_CREDENTIALS_FILE", path, 1);
    expect_good(true, 5, 5);
    setenv("AWS_PROFILE", "none", 1);
    expect_bad(where(true), LS_ECONFIG, "no usable profile [none]");
    setenv("AWS_SHARED_CREDENTIALS_FILE", scratch_path(*state, "absent"), 1);
    expect_bad(where(true), LS_ECONFIG, "absent");
    unsetenv("AWS_PROFILE");
    unsetenv("AWS_SHARED_CREDENTIALS_FILE");
    assert_int_equal(s3_server_faults(server), 0);
}

/* A session that expired goes on with what the file has by then. */
CASE_WITH(test_credentials_that_are_renewed, setup, teardown)
{
    static const char file[] = "[default]\naws_access_key_id=AKIDEXAMPLE\n"
                               "aws_secret_access_key=wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY\n"
                               "aws_session_token=fresh\n";
    const size_t without_token = sizeof file - sizeof "aws_session_token=fresh\n";
    const char *path = scratch_path(*state, "credentials");
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_SECRET_ACCESS_KEY");
    unsetenv("AWS_SESSION_TOKEN");
    setenv("AWS_SHARED_CREDENTIALS_FILE", path, 1);
    scratch_write(path, file, without_token);
    struct ls_error error = {0};
    struct ls_server *at;
    struct ls_http_request request = {.method = "GET", .limit = BYTES};
    assert_ok(ls_server_open(&at, where(true), &quick, &error), error);
    request.key = ls_server_key(at);
    s3_server_fail(server, S3_REFUSE, 1, false);
    assert_int_equal(ls_http_send(at, &request, &error), LS_EIO); /* the file has the same ones */
    scratch_write(path, file, sizeof file - 1);
    s3_server_fail(server, S3_REFUSE, 1, false);
    assert_ok(ls_http_send(at, &request, &error), error);
    assert_int_equal(s3_server_requests(server), 2);
    assert_int_equal(request.bytes, BYTES);
    ls_http_request_release(&request);
    ls_server_close(at);
    unsetenv("AWS_SHARED_CREDENTIALS_FILE");
    s3_server_fail(server, S3_SOUND, 0, false);
    assert_int_equal(s3_server_faults(server), 0);
}

/* S3 says where a bucket is in a header, and gives no other reason for a HEAD. */
CASE_WITH(test_a_head_that_is_refused, setup, teardown)
{
    static const struct {
        enum s3_failure how;
        const char *method, *words;
    } cases[] = {
        {S3_REGION, "HEAD", "HTTP 301. The bucket is in another region: set AWS_REGION=eu-west-9"},
        {S3_REGION, "GET", "PermanentRedirect (for a test). The bucket is in another region"},
        {S3_REFUSE, "HEAD", "HTTP 403. S3 gives no reason for a HEAD: see whether the credentials"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_error error = {0};
        struct ls_server *at;
        struct ls_http_request request = {.method = cases[i].method, .limit = BYTES};
        s3_server_fail(server, cases[i].how, 1, true);
        assert_ok(ls_server_open(&at, where(true), &quick, &error), error);
        request.key = ls_server_key(at);
        assert_int_equal(ls_http_send(at, &request, &error), LS_EIO);
        if (!strstr(error.text, cases[i].words))
            fail_msg("\"%s\" does not say \"%s\"", error.text, cases[i].words);
        assert_int_equal(s3_server_requests(server), 1);
        ls_http_request_release(&request);
        ls_server_close(at);
    }
    s3_server_fail(server, S3_SOUND, 0, false);
}

/* The password of ~/.netrc goes to its host, and into no error. */
CASE_WITH(test_passwords, setup, teardown)
{
    static const char file[] = "machine 127.0.0.1 login me password hunter2\n";
    const char *path = scratch_path(*state, "netrc");
    s3_server_expect_password(server, "bWU6aHVudGVyMg==");
    setenv("NETRC", scratch_path(*state, "absent"), 1);
    expect_bad(where(false), LS_EIO, "HTTP 401");
    scratch_write(path, file, sizeof file - 1);
    setenv("NETRC", path, 1);
    expect_good(false, 5, 5);
    s3_server_fail(server, S3_REFUSE, 1, true);
    expect_bad(where(false), LS_EIO, "HTTP 403");
    unsetenv("NETRC");
}

CASE_WITH(test_urls_that_are_refused, setup, teardown)
{
    static const char *const urls[] = {"http://me:hunter2@host/x",
                                       "https://hunter2@host/x",
                                       "http://host/x?key=hunter2",
                                       "https://host/x#hunter2",
                                       "http:///x",
                                       "http://host/a b",
                                       "s3://me:hunter2@bucket/x",
                                       "s3://ab/x",
                                       "s3://bucket/a?hunter2",
                                       "ftp://host/x",
                                       "s3://bucket/../x"};
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++)
        expect_bad(urls[i], LS_ECONFIG, "");
    expect_bad("gs://bucket/x", LS_ECONFIG,
               "gs:// is not supported: expected http://, https:// or");
    expect_bad("FTP://host/x", LS_ECONFIG, "FTP:// is not supported");
    assert_int_equal(s3_server_requests(server), 0);
    expect_bad("http://127.0.0.1:1/x", LS_EIO, "tried 3 times");
}

CASE_WITH(test_schemes, setup, teardown)
{
    static const char *const urls[] = {"HTTP://h/x", "https://h", "S3://b", "ftp://h",
                                       "a+b-c.1://"};
    static const char *const others[] = {
        "",       "x",       "/a/b",       "http:/h",      "http:",  "://h",
        "1a://h", "a b://h", "./http://h", "u16:http://h", "a_b://h"};
    char web[600], small[] = "S3://Bucket/X", path[] = "A/B://x";
    unsigned char out[BYTES];
    struct ls_error error = {0};
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++)
        if (!ls_url_is(urls[i]))
            fail_msg("%s is taken for no URL", urls[i]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (ls_url_is(others[i]))
            fail_msg("%s is taken for a URL", others[i]);
    ls_url_normalize(small);
    ls_url_normalize(path);
    assert_string_equal(small, "s3://Bucket/X");
    assert_string_equal(path, "A/B://x");
    /* The same object. */
    snprintf(web, sizeof web, "hTTp%s", strchr(where(false), ':'));
    assert_int_equal(get(web, 17, 500, out, &error), LS_OK);
    assert_memory_equal(out, data + 17, 500);
    assert_int_equal(get("S3://bucket/data/x.bin", 17, 500, out, &error), LS_OK);
    assert_memory_equal(out, data + 17, 500);
}

/* ---- https ----------------------------------------------------------------------------------- */

/* TLS in front of a port of the loopback, for requests without a body, each on a connection of its
 * own; its own port is what it prints. */
static const char front[] =
    "import socket, ssl, sys\n"
    "tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)\n"
    "tls.load_cert_chain(sys.argv[1], sys.argv[2])\n"
    "server = socket.create_server(('127.0.0.1', 0))\n"
    "print(server.getsockname()[1], flush=True)\n"
    "while True:\n"
    "    try:\n"
    "        client = tls.wrap_socket(server.accept()[0], server_side=True)\n"
    "        inside = socket.create_connection(('127.0.0.1', int(sys.argv[3])))\n"
    "        asked = b''\n"
    "        while not asked.endswith(b'\\r\\n\\r\\n'):\n"
    "            part = client.recv(65536)\n"
    "            if not part:\n"
    "                raise OSError('gone')\n"
    "            asked += part\n"
    "        inside.sendall(asked)\n"
    "        while answer := inside.recv(65536):\n"
    "            client.sendall(answer)\n"
    "        client.close()\n"
    "    except OSError:\n"
    "        pass\n";

/* A certificate for 127.0.0.1 by an authority of its own: itself. */
static bool certificate_make(const char *certificate, const char *key)
{
    char command[1024];
    snprintf(command, sizeof command,
             "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
             "-subj /CN=test -addext subjectAltName=IP:127.0.0.1 -out '%s' -keyout '%s' "
             ">/dev/null 2>&1",
             certificate, key);
    return system(command) == 0;
}

/* Its port, 0: it does not run here. */
static int front_start(const char *certificate, const char *key, pid_t *child)
{
    char port[8] = "", *inside = strdup(s3_server_url(server, ""));
    int ends_of[2];
    *strchr(inside + strlen("http://"), '/') = '\0';
    assert_int_equal(pipe(ends_of), 0);
    *child = child_fork(SIGKILL);
    if (*child == 0) {
        dup2(ends_of[1], STDOUT_FILENO);
        execlp("python3", "python3", "-c", front, certificate, key, strrchr(inside, ':') + 1,
               (char *)NULL);
        _exit(127);
    }
    free(inside);
    close(ends_of[1]);
    for (size_t at = 0; at < sizeof port - 1 && read(ends_of[0], port + at, 1) == 1; at++)
        if (port[at] == '\n')
            break;
    close(ends_of[0]);
    return atoi(port);
}

/* What the front passes on, and what no certificate speaks for. */
static void expect_https(int port, const char *certificate, const char *key)
{
    char web[64], other[64], bucket[64];
    snprintf(web, sizeof web, "https://127.0.0.1:%d/web/data/x.bin", port);
    snprintf(other, sizeof other, "https://localhost:%d/web/data/x.bin", port);
    snprintf(bucket, sizeof bucket, "https://127.0.0.1:%d", port);
    unsigned char out[BYTES];
    struct ls_error error = {0};
    s3_server_fail(server, S3_SOUND, 0, false);
    expect_bad(web, LS_EIO, "certificate");
    expect_bad(web, LS_EIO, web);
    expect_bad(web, LS_EIO, "CURL_CA_BUNDLE=FILE");
    setenv("CURL_CA_BUNDLE", key, 1); /* no certificate */
    expect_bad(web, LS_EIO, "certificate");
    setenv("CURL_CA_BUNDLE", "/nonexistent/authority", 1);
    expect_bad(web, LS_EIO, "/nonexistent/authority");
    setenv("CURL_CA_BUNDLE", certificate, 1);
    expect_bad(other, LS_EIO, "'localhost'");
    assert_int_equal(s3_server_requests(server), 0);
    assert_ok(get(web, 17, 500, out, &error), error);
    assert_memory_equal(out, data + 17, 500);
    s3_server_fail(server, S3_MOVED, 1, false); /* to http:// */
    expect_bad(web, LS_EIO, "http");
    assert_int_equal(s3_server_requests(server), 1);

    char *plain = strdup(getenv("AWS_ENDPOINT_URL"));
    setenv("AWS_ENDPOINT_URL", bucket, 1);
    setenv("AWS_CA_BUNDLE", "/nonexistent/authority", 1);
    expect_bad(where(true), LS_EIO, "/nonexistent/authority");
    setenv("AWS_CA_BUNDLE", certificate, 1);
    unsetenv("CURL_CA_BUNDLE");
    expect_good(true, 17, 500);
    expect_bad(web, LS_EIO, "certificate");
    setenv("SSL_CERT_FILE", certificate, 1);
    unsetenv("AWS_CA_BUNDLE");
    expect_good(true, 17, 500);
    assert_int_equal(s3_server_faults(server), 0);
    setenv("AWS_ENDPOINT_URL", plain, 1);
    free(plain);
}

CASE_WITH(test_https, setup, teardown)
{
    static const char *const names[] = {"CURL_CA_BUNDLE", "SSL_CERT_FILE", "AWS_CA_BUNDLE"};
    char *certificate = strdup(scratch_path(*state, "certificate"));
    char *key = strdup(scratch_path(*state, "key"));
    pid_t child = 0;
    for (int i = 0; i < 3; i++)
        unsetenv(names[i]);
    bool made = certificate_make(certificate, key);
    int port = made ? front_start(certificate, key, &child) : 0;
    if (port)
        expect_https(port, certificate, key);
    else
        print_message("SKIPPED: https: %s\n", made ? "no python3 with ssl" : "no openssl");
    if (child)
        kill(child, SIGKILL);
    if (child)
        waitpid(child, NULL, 0);
    for (int i = 0; i < 3; i++)
        unsetenv(names[i]);
    free(certificate);
    free(key);
}

SUITE_MAIN(NULL, NULL)
