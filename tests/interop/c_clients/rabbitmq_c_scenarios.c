// SPDX-License-Identifier: Apache-2.0
//
// What we ask of rabbitmq-c as a library: programs.py runs it, and hears what became of each scenario.

#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include <amqp.h>
#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>

#define MUST(condition) \
  do { \
    if (!(condition)) fail(__LINE__, #condition); \
  } while (0)

static struct timeval patience;
static jmp_buf failed;
static char failure[512];
static char name[256];
static amqp_connection_state_t connection;

static void fail(int line, const char *what) {
  snprintf(failure, sizeof failure, "line %d: %s", line, what);
  longjmp(failed, 1);
}

static amqp_bytes_t text(const char *characters) { return amqp_cstring_bytes(characters); }

static int same(amqp_bytes_t bytes, const char *wanted) {
  return bytes.len == strlen(wanted) && memcmp(bytes.bytes, wanted, bytes.len) == 0;
}

static void good(amqp_connection_state_t of) {
  amqp_rpc_reply_t reply = amqp_get_rpc_reply(of);
  if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION)
    fail(__LINE__, amqp_error_string2(reply.library_error));
  if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION) fail(__LINE__, amqp_method_name(reply.reply.id));
  MUST(reply.reply_type == AMQP_RESPONSE_NORMAL);
}

// The last reply is an error of the channel, or of the connection, with that code and text.
static void refused(amqp_rpc_reply_t reply, int code, const char *wanted) {
  char got[512] = "";
  int number = 0;
  MUST(reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION);
  if (reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD) {
    amqp_channel_close_t *close = reply.reply.decoded;
    number = close->reply_code;
    snprintf(got, sizeof got, "%.*s", (int)close->reply_text.len, (char *)close->reply_text.bytes);
  } else {
    amqp_connection_close_t *close = reply.reply.decoded;
    MUST(reply.reply.id == AMQP_CONNECTION_CLOSE_METHOD);
    number = close->reply_code;
    snprintf(got, sizeof got, "%.*s", (int)close->reply_text.len, (char *)close->reply_text.bytes);
  }
  if (number != code || strstr(got, wanted) == NULL) fail(__LINE__, got);
}

static amqp_table_entry_t entry(const char *key, char kind) {
  amqp_table_entry_t made;
  memset(&made, 0, sizeof made);
  made.key = text(key);
  made.value.kind = kind;
  return made;
}

static amqp_table_entry_t words(const char *key, const char *value) {
  amqp_table_entry_t made = entry(key, AMQP_FIELD_KIND_UTF8);
  made.value.value.bytes = text(value);
  return made;
}

static amqp_table_entry_t number(const char *key, int value) {
  amqp_table_entry_t made = entry(key, AMQP_FIELD_KIND_I32);
  made.value.value.i32 = value;
  return made;
}

static amqp_table_t table_of(amqp_table_entry_t *entries, int count) {
  amqp_table_t made = {count, entries};
  return made;
}

static amqp_connection_state_t open_socket(int tls) {
  amqp_connection_state_t made = amqp_new_connection();
  amqp_socket_t *socket = tls ? amqp_ssl_socket_new(made) : amqp_tcp_socket_new(made);
  if (tls) {
    MUST(amqp_ssl_socket_set_cacert(socket, getenv("BROKER_CA")) == 0);
    MUST(amqp_ssl_socket_set_key(socket, getenv("BROKER_CERTIFICATE"), getenv("BROKER_KEY")) == 0);
    amqp_ssl_socket_set_verify_peer(socket, 1);
    amqp_ssl_socket_set_verify_hostname(socket, 1);
  }
  const char *host = tls ? "localhost" : getenv("BROKER_HOST");
  const char *port = getenv(tls ? "BROKER_TLS_PORT" : "BROKER_PORT");
  int status = amqp_socket_open_noblock(socket, host, atoi(port), &patience);
  if (status != AMQP_STATUS_OK) fail(__LINE__, amqp_error_string2(status));
  return made;
}

static amqp_connection_state_t log_in(int frame_max, int heartbeat_s) {
  amqp_connection_state_t made = open_socket(0);
  amqp_table_entry_t hears = entry("consumer_cancel_notify", AMQP_FIELD_KIND_BOOLEAN);
  amqp_table_entry_t capabilities = entry("capabilities", AMQP_FIELD_KIND_TABLE);
  hears.value.value.boolean = 1;
  capabilities.value.value.table = table_of(&hears, 1);
  amqp_table_t properties = table_of(&capabilities, 1);
  amqp_rpc_reply_t reply = amqp_login_with_properties(made, "/", 0, frame_max, heartbeat_s, &properties,
                                                      AMQP_SASL_METHOD_PLAIN, "guest", "guest");
  MUST(reply.reply_type == AMQP_RESPONSE_NORMAL);
  return made;
}

static void open_channel(int channel) {
  amqp_channel_open(connection, channel);
  good(connection);
}

static void declare(int channel, const char *queue, int durable, amqp_table_t arguments) {
  amqp_queue_declare(connection, channel, text(queue), 0, durable, !durable, 0, arguments);
  good(connection);
}

static uint32_t depth(int channel, const char *queue) {
  amqp_queue_declare_ok_t *ok =
      amqp_queue_declare(connection, channel, text(queue), 1, 0, 0, 0, amqp_empty_table);
  good(connection);
  return ok->message_count;
}

static void publish(int channel, const char *exchange, const char *key, int mandatory, amqp_bytes_t body,
                    amqp_basic_properties_t *properties) {
  MUST(amqp_basic_publish(connection, channel, text(exchange), text(key), mandatory, 0, properties,
                          body) == AMQP_STATUS_OK);
}

static void consume(int channel, const char *queue, int no_ack, amqp_table_t arguments) {
  amqp_basic_consume(connection, channel, text(queue), text("mine"), 0, no_ack, 0, arguments);
  good(connection);
}

static amqp_envelope_t take(void) {
  amqp_envelope_t envelope;
  amqp_maybe_release_buffers(connection);
  amqp_rpc_reply_t reply = amqp_consume_message(connection, &envelope, &patience, 0);
  MUST(reply.reply_type == AMQP_RESPONSE_NORMAL);
  return envelope;
}

// The next frame, which is one of this method.
static void *heard(amqp_method_number_t id) {
  amqp_frame_t frame;
  MUST(amqp_simple_wait_frame_noblock(connection, &frame, &patience) == AMQP_STATUS_OK);
  MUST(frame.frame_type == AMQP_FRAME_METHOD && frame.payload.method.id == id);
  return frame.payload.method.decoded;
}

static amqp_field_value_t *find(amqp_table_t table, const char *key) {
  for (int i = 0; i < table.num_entries; i++)
    if (same(table.entries[i].key, key)) return &table.entries[i].value;
  fail(__LINE__, key);
  return NULL;
}

// Each kind of field that it knows comes back as it went.
static void every_kind_of_field(void) {
  amqp_table_entry_t sent[18], inner = words("in", "täxt");
  amqp_field_value_t items[2] = {inner.value, {AMQP_FIELD_KIND_VOID, {0}}};
  const char kinds[] = "tbBsuIilLfdDSATFVx";
  char keys[18][2];
  for (int i = 0; i < 18; i++) {
    snprintf(keys[i], 2, "%c", kinds[i]);
    sent[i] = entry(keys[i], kinds[i]);
    if (strchr("bBsuIilLT", kinds[i])) sent[i].value.value.u64 = 100 + i;
  }
  sent[0].value.value.boolean = 1;
  sent[1].value.value.i8 = -5;
  sent[7].value.value.i64 = -((int64_t)1 << 40);
  sent[9].value.value.f32 = 0.5f;
  sent[10].value.value.f64 = 0.25;
  sent[11].value.value.decimal.decimals = 2;
  sent[11].value.value.decimal.value = 314;
  sent[12] = words(keys[12], "text");
  sent[13].value.value.array.num_entries = 2;
  sent[13].value.value.array.entries = items;
  sent[15].value.value.table = table_of(&inner, 1);
  sent[17].value.value.bytes.len = 3;
  sent[17].value.value.bytes.bytes = "\0\377x";
  amqp_basic_properties_t properties;
  memset(&properties, 0, sizeof properties);
  properties._flags = AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_CONTENT_TYPE_FLAG |
                      AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_PRIORITY_FLAG |
                      AMQP_BASIC_CORRELATION_ID_FLAG | AMQP_BASIC_REPLY_TO_FLAG |
                      AMQP_BASIC_EXPIRATION_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG |
                      AMQP_BASIC_TIMESTAMP_FLAG | AMQP_BASIC_TYPE_FLAG | AMQP_BASIC_USER_ID_FLAG |
                      AMQP_BASIC_APP_ID_FLAG | AMQP_BASIC_CONTENT_ENCODING_FLAG;
  properties.headers = table_of(sent, 18);
  properties.content_type = text("text/plain");
  properties.content_encoding = text("utf-8");
  properties.delivery_mode = 2;
  properties.priority = 4;
  properties.correlation_id = text("c");
  properties.reply_to = text("r");
  properties.expiration = text("60000");
  properties.message_id = text("m");
  properties.timestamp = 1700000000;
  properties.type = text("t");
  properties.user_id = text("guest");
  properties.app_id = text("a");
  declare(1, name, 0, amqp_empty_table);
  publish(1, "", name, 0, text("body"), &properties);
  amqp_rpc_reply_t reply = amqp_basic_get(connection, 1, text(name), 0);
  MUST(reply.reply_type == AMQP_RESPONSE_NORMAL && reply.reply.id == AMQP_BASIC_GET_OK_METHOD);
  uint64_t tag = ((amqp_basic_get_ok_t *)reply.reply.decoded)->delivery_tag;
  amqp_message_t got;
  MUST(amqp_read_message(connection, 1, &got, 0).reply_type == AMQP_RESPONSE_NORMAL);
  amqp_basic_properties_t *p = &got.properties;
  MUST(p->_flags == properties._flags && same(got.body, "body"));
  MUST(same(p->content_type, "text/plain") && same(p->content_encoding, "utf-8"));
  MUST(p->delivery_mode == 2 && p->priority == 4 && p->timestamp == 1700000000);
  MUST(same(p->correlation_id, "c") && same(p->reply_to, "r") && same(p->expiration, "60000"));
  MUST(same(p->message_id, "m") && same(p->type, "t") && same(p->user_id, "guest") && same(p->app_id, "a"));
  MUST(p->headers.num_entries == 18);
  for (int i = 0; i < 18; i++) {
    amqp_field_value_t *found = find(p->headers, keys[i]), *wanted = &sent[i].value;
    if (found->kind != wanted->kind) fail(__LINE__, keys[i]);
    switch (wanted->kind) {
      case 't': MUST(found->value.boolean == 1); break;
      case 'b': case 'B': MUST(found->value.u8 == wanted->value.u8); break;
      case 's': case 'u': MUST(found->value.u16 == wanted->value.u16); break;
      case 'I': case 'i': MUST(found->value.u32 == wanted->value.u32); break;
      case 'l': case 'L': case 'T': MUST(found->value.u64 == wanted->value.u64); break;
      case 'f': MUST(found->value.f32 == 0.5f); break;
      case 'd': MUST(found->value.f64 == 0.25); break;
      case 'D': MUST(found->value.decimal.decimals == 2 && found->value.decimal.value == 314); break;
      case 'S': MUST(same(found->value.bytes, "text")); break;
      case 'x': MUST(found->value.bytes.len == 3 && memcmp(found->value.bytes.bytes, "\0\377x", 3) == 0); break;
      case 'F': MUST(same(find(found->value.table, "in")->value.bytes, "täxt")); break;
      case 'A': MUST(found->value.array.num_entries == 2 && found->value.array.entries[1].kind == 'V'); break;
      default: MUST(found->kind == 'V');
    }
  }
  amqp_destroy_message(&got);
  MUST(amqp_basic_ack(connection, 1, tag, 0) == AMQP_STATUS_OK && depth(1, name) == 0);
}

static void confirms_and_returns(void) {
  amqp_table_entry_t full[2] = {number("x-max-length", 3), words("x-overflow", "reject-publish")};
  declare(1, name, 0, table_of(full, 2));
  MUST(amqp_confirm_select(connection, 1) != NULL);
  for (uint64_t tag = 1; tag <= 3; tag++) {
    publish(1, "", name, 0, text("x"), NULL);
    amqp_basic_ack_t *ack = heard(AMQP_BASIC_ACK_METHOD);
    MUST(ack->delivery_tag == tag);
  }
  publish(1, "", name, 0, text("full"), NULL);
  amqp_basic_nack_t *nack = heard(AMQP_BASIC_NACK_METHOD);
  MUST(nack->delivery_tag == 4);
  publish(1, "amq.direct", name, 1, text("lost"), NULL);
  amqp_basic_return_t *returned = heard(AMQP_BASIC_RETURN_METHOD);
  MUST(returned->reply_code == 312 && same(returned->reply_text, "NO_ROUTE"));
  MUST(same(returned->exchange, "amq.direct") && same(returned->routing_key, name));
  amqp_message_t back;
  MUST(amqp_read_message(connection, 1, &back, 0).reply_type == AMQP_RESPONSE_NORMAL);
  MUST(same(back.body, "lost"));
  amqp_destroy_message(&back);
  heard(AMQP_BASIC_ACK_METHOD);
}

static void prefetch_acks_and_nacks(void) {
  char body[2] = "0";
  declare(1, name, 0, amqp_empty_table);
  MUST(amqp_basic_qos(connection, 1, 0, 2, 0) != NULL);
  for (; body[0] < '4'; body[0]++) publish(1, "", name, 0, text(body), NULL);
  consume(1, name, 0, amqp_empty_table);
  amqp_envelope_t first = take(), second = take();
  MUST(same(first.message.body, "0") && same(second.message.body, "1") && !second.redelivered);
  MUST(depth(1, name) == 2);
  MUST(amqp_basic_nack(connection, 1, second.delivery_tag, 1, 1) == AMQP_STATUS_OK);
  amqp_destroy_envelope(&first);
  amqp_destroy_envelope(&second);
  for (body[0] = '0'; body[0] < '4'; body[0]++) {
    amqp_envelope_t envelope = take();
    MUST(same(envelope.message.body, body) && envelope.redelivered == (body[0] < '2'));
    if (body[0] == '0')
      MUST(amqp_basic_reject(connection, 1, envelope.delivery_tag, 0) == AMQP_STATUS_OK);
    else
      MUST(amqp_basic_ack(connection, 1, envelope.delivery_tag, 0) == AMQP_STATUS_OK);
    amqp_destroy_envelope(&envelope);
  }
  MUST(depth(1, name) == 0);
  amqp_queue_delete(connection, 1, text(name), 0, 0);
}

static void transactions_and_recover(void) {
  declare(1, name, 0, amqp_empty_table);
  MUST(amqp_tx_select(connection, 1) != NULL);
  publish(1, "", name, 0, text("undone"), NULL);
  MUST(amqp_tx_rollback(connection, 1) != NULL);
  publish(1, "", name, 0, text("kept"), NULL);
  MUST(amqp_tx_commit(connection, 1) != NULL && depth(1, name) == 1);
  consume(1, name, 0, amqp_empty_table);
  for (int again = 0; again < 2; again++) {
    amqp_envelope_t envelope = take();
    MUST(same(envelope.message.body, "kept") && envelope.redelivered == again);
    amqp_destroy_envelope(&envelope);
    if (!again) MUST(amqp_basic_recover(connection, 1, 1) != NULL);
  }
}

static void exchanges_and_bindings(void) {
  char from[300];
  snprintf(from, sizeof from, "%s.from", name);
  declare(1, name, 0, amqp_empty_table);
  amqp_exchange_declare(connection, 1, text(name), text("topic"), 0, 0, 0, 0, amqp_empty_table);
  good(connection);
  amqp_exchange_declare(connection, 1, text(from), text("fanout"), 0, 0, 0, 1, amqp_empty_table);
  good(connection);
  amqp_exchange_bind(connection, 1, text(from), text(name), text("a.#"), amqp_empty_table);
  good(connection);
  amqp_queue_bind(connection, 1, text(name), text(from), text(""), amqp_empty_table);
  good(connection);
  publish(1, name, "a.b.c", 0, text("yes"), NULL);
  publish(1, name, "b", 0, text("no"), NULL);
  consume(1, name, 1, amqp_empty_table);
  amqp_envelope_t bound = take();
  MUST(same(bound.message.body, "yes") && same(bound.exchange, name) && same(bound.routing_key, "a.b.c"));
  amqp_destroy_envelope(&bound);
  amqp_exchange_unbind(connection, 1, text(from), text(name), text("a.#"), amqp_empty_table);
  good(connection);
  publish(1, name, "a.b", 0, text("no more"), NULL);
  MUST(depth(1, name) == 0);
  amqp_exchange_delete(connection, 1, text(name), 0);
  good(connection);
  amqp_exchange_delete(connection, 1, text(from), 0);
  good(connection);
}

static void cancelled_by_the_broker(void) {
  declare(1, name, 0, amqp_empty_table);
  consume(1, name, 1, amqp_empty_table);
  amqp_queue_delete_t gone = {0, text(name), 0, 0, 1};
  MUST(amqp_send_method(connection, 1, AMQP_QUEUE_DELETE_METHOD, &gone) == AMQP_STATUS_OK);
  amqp_basic_cancel_t *cancel = heard(AMQP_BASIC_CANCEL_METHOD);
  MUST(same(cancel->consumer_tag, "mine"));
}

static void dead_letters(void) {
  char dead[300];
  snprintf(dead, sizeof dead, "%s.dead", name);
  amqp_table_entry_t limits[3] = {words("x-dead-letter-exchange", ""),
                                  words("x-dead-letter-routing-key", dead),
                                  number("x-message-ttl", 1)};
  declare(1, dead, 0, amqp_empty_table);
  declare(1, name, 0, table_of(limits, 3));
  consume(1, dead, 1, amqp_empty_table);
  publish(1, "", name, 0, text("old"), NULL);
  amqp_envelope_t letter = take();
  amqp_field_value_t *deaths = find(letter.message.properties.headers, "x-death");
  MUST(same(letter.message.body, "old") && deaths->kind == 'A' && deaths->value.array.num_entries == 1);
  amqp_table_t death = deaths->value.array.entries[0].value.table;
  amqp_field_value_t *count = find(death, "count");
  MUST(count->kind == AMQP_FIELD_KIND_I64 && count->value.i64 == 1);
  MUST(same(find(death, "reason")->value.bytes, "expired"));
  MUST(same(find(death, "queue")->value.bytes, name));
  MUST(find(death, "time")->kind == AMQP_FIELD_KIND_TIMESTAMP);
  amqp_destroy_envelope(&letter);
}

static void streams(void) {
  amqp_table_entry_t type = words("x-queue-type", "stream"), offset = entry("x-stream-offset", 'l');
  offset.value.value.i64 = 1;
  declare(1, name, 1, table_of(&type, 1));
  MUST(amqp_confirm_select(connection, 1) != NULL && amqp_basic_qos(connection, 1, 0, 5, 0) != NULL);
  for (char body[2] = "0"; body[0] < '3'; body[0]++) {
    publish(1, "", name, 0, text(body), NULL);
    heard(AMQP_BASIC_ACK_METHOD);
  }
  consume(1, name, 0, table_of(&offset, 1));
  for (int at = 1; at < 3; at++) {
    amqp_envelope_t record = take();
    char body[2] = {(char)('0' + at), 0};
    amqp_field_value_t *found = find(record.message.properties.headers, "x-stream-offset");
    MUST(same(record.message.body, body) && found->kind == AMQP_FIELD_KIND_I64 && found->value.i64 == at);
    amqp_destroy_envelope(&record);
  }
  amqp_queue_delete(connection, 1, text(name), 0, 0);
  good(connection);
}

static void errors_of_channels(void) {
  char wanted[400];
  snprintf(wanted, sizeof wanted, "NOT_FOUND - no queue '%s' in vhost '/'", name);
  amqp_queue_declare(connection, 1, text(name), 1, 0, 0, 0, amqp_empty_table);
  refused(amqp_get_rpc_reply(connection), 404, wanted);
  amqp_channel_close_ok_t ok;
  amqp_send_method(connection, 1, AMQP_CHANNEL_CLOSE_OK_METHOD, &ok);
  open_channel(1);
  amqp_exchange_declare(connection, 1, text("amq.mine"), text("fanout"), 0, 0, 0, 0, amqp_empty_table);
  refused(amqp_get_rpc_reply(connection), 403, "ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix");
  amqp_send_method(connection, 1, AMQP_CHANNEL_CLOSE_OK_METHOD, &ok);
  open_channel(1);
}

static void errors_of_connections(void) {
  amqp_connection_state_t other = open_socket(0);
  refused(amqp_login(other, "/", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, "guest", "wrong"), 403,
          "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN.");
  amqp_destroy_connection(other);
  other = open_socket(0);
  refused(amqp_login(other, "none", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest"), 530,
          "NOT_ALLOWED - vhost none not found");
  amqp_destroy_connection(other);
}

// Small frames, and with nothing else to say, heartbeats of a second.
static void small_frames_and_heartbeats(void) {
  static char body[100000];
  amqp_connection_state_t before = connection;
  struct timeval idle = {2, 500000};
  amqp_frame_t frame;
  for (int tries = 3;; tries--) {  // A machine that stands still for so long loses it all the same.
    connection = log_in(4096, 1);
    MUST(amqp_get_frame_max(connection) == 4096 && amqp_get_heartbeat(connection) == 1);
    if (amqp_simple_wait_frame_noblock(connection, &frame, &idle) == AMQP_STATUS_TIMEOUT) break;
    MUST(tries > 1);
    amqp_destroy_connection(connection);
  }
  open_channel(1);
  declare(1, name, 0, amqp_empty_table);
  memset(body, 'x', sizeof body);
  amqp_bytes_t large = {sizeof body, body};
  publish(1, "", name, 0, large, NULL);
  consume(1, name, 1, amqp_empty_table);
  amqp_envelope_t got = take();
  MUST(got.message.body.len == sizeof body && memcmp(got.message.body.bytes, body, sizeof body) == 0);
  amqp_destroy_envelope(&got);
  MUST(depth(1, name) == 0);
  MUST(amqp_connection_close(connection, AMQP_REPLY_SUCCESS).reply_type == AMQP_RESPONSE_NORMAL);
  amqp_destroy_connection(connection);
  connection = before;
}

// The authority verifies the broker, and the certificate logs in.
static void tls_and_certificates(void) {
  amqp_connection_state_t before = connection;
  connection = open_socket(1);
  amqp_rpc_reply_t reply =
      amqp_login(connection, "/", 0, 131072, 0, AMQP_SASL_METHOD_EXTERNAL, "guest");
  MUST(reply.reply_type == AMQP_RESPONSE_NORMAL);
  open_channel(1);
  declare(1, name, 0, amqp_empty_table);
  publish(1, "", name, 0, text("x"), NULL);
  MUST(depth(1, name) == 1);
  MUST(amqp_connection_close(connection, AMQP_REPLY_SUCCESS).reply_type == AMQP_RESPONSE_NORMAL);
  amqp_destroy_connection(connection);
  connection = before;
}

static void what_is_durable_comes_back(void) {
  char line[16];
  amqp_basic_properties_t persistent;
  memset(&persistent, 0, sizeof persistent);
  persistent._flags = AMQP_BASIC_DELIVERY_MODE_FLAG;
  persistent.delivery_mode = AMQP_DELIVERY_PERSISTENT;
  declare(1, name, 1, amqp_empty_table);
  MUST(amqp_confirm_select(connection, 1) != NULL);
  publish(1, "", name, 0, text("kept"), &persistent);
  heard(AMQP_BASIC_ACK_METHOD);
  puts("{\"ask\": [\"restart\"]}");
  amqp_connection_close_t *close = heard(AMQP_CONNECTION_CLOSE_METHOD);
  MUST(close->reply_code == 320);
  MUST(fgets(line, sizeof line, stdin) != NULL);
  amqp_destroy_connection(connection);
  connection = log_in(131072, 0);
  open_channel(1);
  MUST(depth(1, name) == 1);
  amqp_queue_delete(connection, 1, text(name), 0, 0);
  good(connection);
}

static const struct {
  const char *name;
  void (*run)(void);
} scenarios[] = {
    {"every_kind_of_field", every_kind_of_field},
    {"confirms_and_returns", confirms_and_returns},
    {"prefetch_acks_and_nacks", prefetch_acks_and_nacks},
    {"transactions_and_recover", transactions_and_recover},
    {"exchanges_and_bindings", exchanges_and_bindings},
    {"cancelled_by_the_broker", cancelled_by_the_broker},
    {"dead_letters", dead_letters},
    {"streams", streams},
    {"errors_of_channels", errors_of_channels},
    {"errors_of_connections", errors_of_connections},
    {"small_frames_and_heartbeats", small_frames_and_heartbeats},
    {"tls_and_certificates", tls_and_certificates},
    {"what_is_durable_comes_back", what_is_durable_comes_back},
};

int main(void) {
  setbuf(stdout, NULL);
  patience.tv_sec = atoi(getenv("BROKER_PATIENCE_S"));
  for (volatile size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
    snprintf(name, sizeof name, "rabbitmq-c.%s", scenarios[i].name);
    if (setjmp(failed) == 0) {
      connection = log_in(131072, 0);
      open_channel(1);
      scenarios[i].run();
      MUST(amqp_channel_close(connection, 1, AMQP_REPLY_SUCCESS).reply_type == AMQP_RESPONSE_NORMAL);
      MUST(amqp_connection_close(connection, AMQP_REPLY_SUCCESS).reply_type == AMQP_RESPONSE_NORMAL);
      amqp_destroy_connection(connection);
      printf("{\"scenario\": \"%s\", \"failure\": null}\n", scenarios[i].name);
    } else {
      for (char *c = failure; *c; c++)
        if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ') *c = '\'';
      printf("{\"scenario\": \"%s\", \"failure\": \"%s\"}\n", scenarios[i].name, failure);
      // What became of the connection, nobody knows; it goes with the process.
    }
  }
  return 0;
}
