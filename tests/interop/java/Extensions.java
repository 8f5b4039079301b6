// SPDX-License-Identifier: Apache-2.0

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.MapRpcServer;
import com.rabbitmq.client.MessageProperties;
import com.rabbitmq.client.RpcClient;
import com.rabbitmq.client.RpcServer;
import com.rabbitmq.client.StringRpcServer;
import com.rabbitmq.tools.jsonrpc.JsonRpcClient;
import com.rabbitmq.tools.jsonrpc.JsonRpcServer;
import java.io.IOException;
import java.util.Date;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeoutException;

/** What RabbitMQ, its plugins and LavinMQ add to the standard. */
final class Extensions extends Scenarios {
    // --- Answers --------------------------------------------------------------------------------

    private void serve(RpcServer server) {
        var thread = new Thread(() -> {
            try {
                server.mainloop();
            } catch (Exception ended) {
                // So it is when its channel is closed.
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    public void answersBySpecialAddress() throws Exception {
        queue(name);
        serve(new StringRpcServer(connection.createChannel(), name) {
            @Override
            public void processRequest(Delivery request) throws IOException {
                var replyTo = request.getProperties().getReplyTo();
                if (replyTo.startsWith("amq.rabbitmq.reply-to.")) {
                    super.processRequest(request);
                }
            }

            @Override
            public String handleStringCall(String request, AMQP.BasicProperties answer) {
                return request.toUpperCase();
            }
        });
        var client = new RpcClient(channel, "", name, PATIENCE_S * 1000);
        equal(client.stringCall("héllo"), "HÉLLO");
        for (int i = 0; i < 50; i++) {
            equal(client.stringCall("x" + i), "X" + i);
        }
        client.close();
        var nobody = new RpcClient(connection.createChannel(), "", queue(name + ".nobody"), 30);
        try {
            nobody.stringCall("x");
            throw new AssertionError("somebody answers");
        } catch (TimeoutException expected) {
            nobody.close();
        }
        refused(406, "PRECONDITION_FAILED - fast reply consumer does not exist", c -> c.basicPublish(
            "", name, new AMQP.BasicProperties.Builder().replyTo("amq.rabbitmq.reply-to").build(), bytes("x")));
        refused(406, "PRECONDITION_FAILED - reply consumer cannot ack",
            c -> c.basicConsume("amq.rabbitmq.reply-to", false, new Inbox(c)));
    }

    public void answersByAQueue() throws Exception {
        queue(name);
        serve(new MapRpcServer(connection.createChannel(), name) {
            @Override
            public Map<String, Object> handleMapCall(Map<String, Object> request, AMQP.BasicProperties answer) {
                return table("sum", (Integer) request.get("a") + (Integer) request.get("b"));
            }
        });
        var client = new RpcClient(channel, "", name, channel.queueDeclare().getQueue(), PATIENCE_S * 1000);
        equal(client.mapCall(table("a", 2, "b", 3)), table("sum", 5));
        client.close();
    }

    /** What can be asked for. */
    public interface Sums {
        int add(int a, int b);
    }

    public void remoteCallsInJson() throws Exception {
        queue(name);
        serve(new JsonRpcServer(connection.createChannel(), name, Sums.class, (Sums) (a, b) -> a + b));
        var client = new JsonRpcClient(channel, "", name, PATIENCE_S * 1000);
        equal(((Sums) client.createProxy(Sums.class)).add(2, 3), 5);
        client.close();
    }

    // --- Queues ---------------------------------------------------------------------------------

    public void priorities() throws Exception {
        queue(name, "x-max-priority", 5);
        for (int priority : new int[] {1, 9, 3, 5, 0}) {
            var properties = new AMQP.BasicProperties.Builder().priority(priority).build();
            channel.basicPublish("", name, properties, bytes("" + priority));
        }
        equal(drained(name), List.of("9", "5", "3", "1", "0"));
    }

    @SuppressWarnings("unchecked")
    public void deathsAndTheirHeaders() throws Exception {
        var dead = queue(name + ".dead");
        channel.exchangeDeclare(name, "fanout", false, true, null);
        channel.queueBind(dead, name, "");
        queue(name, "x-dead-letter-exchange", name, "x-message-ttl", 600000, "x-max-length", 2L,
            "x-dead-letter-routing-key", "died");
        channel.basicPublish("", name, new AMQP.BasicProperties.Builder().expiration("1").build(), bytes("expired"));
        var expired = take(dead);
        publish(name, "too many", "rejected", "kept");
        var tooMany = take(dead);
        channel.basicReject(channel.basicGet(name, false).getEnvelope().getDeliveryTag(), false);
        var rejected = take(dead);
        equal(drained(name), List.of("kept"));
        for (var got : Map.of("expired", expired, "maxlen", tooMany, "rejected", rejected).entrySet()) {
            var headers = plain(got.getValue().getProps().getHeaders());
            var deaths = (List<Map<String, Object>>) headers.get("x-death");
            equal(deaths.size(), 1);
            var death = deaths.get(0);
            equal(death.get("reason"), got.getKey());
            equal(death.get("queue"), name);
            equal(death.get("exchange"), "");
            equal(death.get("count"), 1L);
            equal(death.get("routing-keys"), List.of(name));
            long age = new Date().getTime() - ((Date) death.get("time")).getTime();
            check(age > -2000 && age < 120_000, death);
            equal(headers.get("x-first-death-reason"), got.getKey());
            equal(headers.get("x-first-death-queue"), name);
            equal(headers.get("x-last-death-exchange"), "");
            equal(got.getValue().getEnvelope().getRoutingKey(), "died");
        }
        var first = ((List<Map<String, Object>>) plain(expired.getProps().getHeaders()).get("x-death")).get(0);
        equal(first.get("original-expiration"), "1");
        equal(expired.getProps().getExpiration(), null);
    }

    public void aRetryQueueCountsItsDeaths() throws Exception {
        queue(name, "x-dead-letter-exchange", "", "x-dead-letter-routing-key", name + ".wait");
        queue(name + ".wait", "x-message-ttl", 1, "x-dead-letter-exchange", "", "x-dead-letter-routing-key", name);
        publish(name, "again");
        var inbox = new Inbox(channel);
        channel.basicConsume(name, inbox);
        for (long round = 0; round < 4; round++) {
            var delivery = inbox.next();
            long count = 0;
            if (round > 0) {
                for (var death : (List<?>) plain(delivery.getProperties().getHeaders()).get("x-death")) {
                    if (((Map<?, ?>) death).get("reason").equals("rejected")) {
                        count = (Long) ((Map<?, ?>) death).get("count");
                    }
                }
            }
            equal(count, round);
            channel.basicReject(inbox.tag(delivery), false);
        }
    }

    public void quorumQueuesCountDeliveries() throws Exception {
        var dead = queue(name + ".dead");
        channel.queueDeclare(name, true, false, false, table(
            "x-queue-type", "quorum", "x-delivery-limit", 2, "x-dead-letter-exchange", "",
            "x-dead-letter-routing-key", dead, "x-quorum-initial-group-size", 3));
        channel.confirmSelect();
        channel.basicPublish("", name, MessageProperties.PERSISTENT_BASIC, bytes("poison"));
        channel.waitForConfirmsOrDie();
        var inbox = new Inbox(channel);
        channel.basicConsume(name, inbox);
        for (int count = 0; count < 3; count++) {
            var delivery = inbox.next();
            var headers = delivery.getProperties().getHeaders();
            var told = headers == null ? null : headers.get("x-delivery-count");
            equal(told == null ? 0L : ((Number) told).longValue(), (long) count);
            equal(delivery.getEnvelope().isRedeliver(), count > 0);
            channel.basicNack(inbox.tag(delivery), false, true);
        }
        equal(plain(take(dead).getProps().getHeaders()).get("x-first-death-reason"), "delivery_limit");
        refused(406, "", c -> c.queueDeclare(name + ".t", false, false, false, table("x-queue-type", "quorum")));
        channel.queueDelete(name);
    }

    public void streamsAreReadFromAnywhere() throws Exception {
        var stream = table("x-queue-type", "stream", "x-max-length-bytes", 1_000_000L, "x-max-age", "1h");
        channel.queueDeclare(name, true, false, false, stream);
        channel.confirmSelect();
        var before = new Date(System.currentTimeMillis() - 60_000);
        publish(name, "0", "1", "2", "3", "4");
        channel.waitForConfirmsOrDie();
        var offsets = Map.<Object, String>of(
            "first", "0", 2, "2", 3L, "3", before, "0", "1h", "0", "last", "4");
        for (var offset : offsets.entrySet()) {
            var reader = connection.createChannel();
            reader.basicQos(2);
            var inbox = new Inbox(reader);
            reader.basicConsume(name, false, table("x-stream-offset", offset.getKey()), inbox);
            Delivery delivery = inbox.next();
            if (offset.getKey().equals("last")) {  // It may begin with the whole last chunk.
                while (!text(delivery.getBody()).equals("4")) {
                    reader.basicAck(inbox.tag(delivery), false);
                    delivery = inbox.next();
                }
            }
            equal(text(delivery.getBody()), offset.getValue());
            equal(delivery.getProperties().getHeaders().get("x-stream-offset"), Long.valueOf(offset.getValue()));
            reader.close();
        }
        var reader = connection.createChannel();
        reader.basicQos(2);
        var inbox = new Inbox(reader);
        reader.basicConsume(name, false, table("x-stream-offset", "next"), inbox);
        publish(name, "5", "6", "7");
        equal(inbox.next(2), List.of("5", "6"));
        reader.basicAck(2, true);
        equal(inbox.next(1), List.of("7"));
        channel.queueDelete(name);
    }

    public void oneActiveConsumerAndItsSuccessor() throws Exception {
        queue(name, "x-single-active-consumer", true);
        var other = connection.createChannel();
        var first = new Inbox(other);
        other.basicConsume(name, true, first);
        var second = new Inbox(channel);
        channel.basicConsume(name, true, second);
        publish(name, "1", "2");
        equal(first.next(2), List.of("1", "2"));
        other.close();
        publish(name, "3");
        equal(second.next(1), List.of("3"));
        refused(403, "in exclusive use", c -> c.basicConsume(name, false, "", false, true, NONE, new Inbox(c)));
    }

    public void consumersHavePriorities() throws Exception {
        queue(name);
        var low = new Inbox(channel);
        var high = new Inbox(channel);
        channel.basicQos(2);
        channel.basicConsume(name, false, table("x-priority", -1), low);
        channel.basicConsume(name, false, table("x-priority", 10), high);
        publish(name, "1", "2", "3");
        equal(high.next(2), List.of("1", "2"));
        equal(low.next(1), List.of("3"));
    }

    public void queuesExpire() throws Exception {
        queue(name, "x-expires", 1);
        until(() -> {
            var probe = connection.createChannel();
            try {
                probe.queueDeclarePassive(name);
                probe.close();
                return false;
            } catch (IOException gone) {
                return true;
            }
        });
    }

    public void aConsumerThatTakesTooLongLosesItsMessage() throws Exception {
        queue(name);
        publish(name, "slow");
        var inbox = new Inbox(channel);
        channel.basicConsume(name, false, table("x-consumer-timeout", 100), inbox);
        equal(inbox.next().getEnvelope().isRedeliver(), false);
        var again = new Inbox(channel);
        channel.basicConsume(name, false, table("x-priority", 5), again);
        equal(again.next().getEnvelope().isRedeliver(), true);
        check(channel.isOpen(), "the channel stays");
    }

    public void messagesOnce() throws Exception {
        queue(name, "x-message-deduplication", true, "x-cache-size", 10);
        for (var id : List.of("a", "b", "a")) {
            channel.basicPublish("", name, headers("x-deduplication-header", id), bytes(id));
        }
        equal(drained(name), List.of("a", "b"));
        channel.exchangeDeclare(name, "x-message-deduplication", false, true,
            table("x-cache-size", 10, "x-cache-ttl", 60_000));
    }

    // --- Exchanges ------------------------------------------------------------------------------

    public void furtherRoutingKeys() throws Exception {
        var openly = queue(name + ".cc");
        var blindly = queue(name + ".bcc");
        queue(name);
        var both = headers("CC", List.of(openly), "BCC", List.of(blindly));
        channel.basicPublish("", name, both, bytes("x"));
        for (var queue : List.of(name, openly, blindly)) {
            equal(plain(take(queue).getProps().getHeaders()), table("CC", List.of(openly)));
        }
        refused(406, "", c -> c.basicPublish("", name, headers("CC", "no array"), bytes("x")));
    }

    public void delayedMessages() throws Exception {
        queue(name);
        channel.exchangeDeclare(name, "x-delayed-message", false, true, table("x-delayed-type", "direct"));
        channel.queueBind(name, name, "k");
        var inbox = new Inbox(channel);
        channel.basicConsume(name, true, inbox);
        channel.basicPublish(name, "k", headers("x-delay", 3_600_000), bytes("in an hour"));
        for (int delay : new int[] {20, 300}) {
            long start = System.nanoTime();
            channel.basicPublish(name, "k", headers("x-delay", delay), bytes("" + delay));
            var delivery = inbox.next();
            equal(text(delivery.getBody()), "" + delay);
            check(System.nanoTime() - start >= (delay - 2) * 1_000_000L, "too early");
            equal(delivery.getProperties().getHeaders().get("x-delay"), -delay);
        }
    }

    public void consistentHash() throws Exception {
        channel.exchangeDeclare(name, "x-consistent-hash", false, true, table("hash-header", "who"));
        var queues = List.of(queue(name + ".1"), queue(name + ".2"));
        for (var queue : queues) {
            channel.queueBind(queue, name, "10");
        }
        for (int i = 0; i < 60; i++) {
            channel.basicPublish(name, "", headers("who", "w" + i % 20), bytes("w" + i % 20));
        }
        var first = drained(queues.get(0));
        var second = drained(queues.get(1));
        equal(first.size() + second.size(), 60);
        check(!first.isEmpty() && !second.isEmpty(), "both get some");
        Set<String> shared = new HashSet<>(first);
        shared.retainAll(second);
        equal(shared, Set.of());
    }

    public void recentHistory() throws Exception {
        channel.exchangeDeclare(name, "x-recent-history", false, true, table("x-recent-history-length", 2));
        for (var body : List.of("1", "2", "3")) {
            channel.basicPublish(name, "", null, bytes(body));
        }
        queue(name);
        channel.queueBind(name, name, "");
        equal(drained(name), List.of("2", "3"));
    }

    public void selectorsChooseMessages() throws Exception {
        queue(name);
        for (int i = 0; i < 4; i++) {
            channel.basicPublish("", name, headers("n", i, "kind", i % 2 == 0 ? "even" : "odd"), bytes("" + i));
        }
        var inbox = new Inbox(channel);
        channel.basicConsume(name, true, table("x-filter-jms-selector", "kind = 'odd' AND n > 2"), inbox);
        equal(inbox.next(1), List.of("3"));
        equal(drained(name), List.of("0", "1", "2"));
    }
}
