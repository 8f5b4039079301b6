// SPDX-License-Identifier: Apache-2.0

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.AlreadyClosedException;
import com.rabbitmq.client.BuiltinExchangeType;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.LongString;
import com.rabbitmq.client.MessageProperties;
import com.rabbitmq.client.Return;
import com.rabbitmq.client.ShutdownSignalException;
import com.rabbitmq.client.impl.LongStringHelper;
import java.io.IOException;
import java.math.BigDecimal;
import java.util.Arrays;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** What every broker of AMQP 0-9-1 with RabbitMQ's extensions does. */
final class Basics extends Scenarios {
    // --- Messages -------------------------------------------------------------------------------

    @SuppressWarnings("unchecked")
    public void theServerTellsWhatItCanDo() throws Exception {
        var server = connection.getServerProperties();
        var can = (Map<String, Object>) server.get("capabilities");
        for (var what : List.of(
            "publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify",
            "connection.blocked", "consumer_priorities", "authentication_failure_close",
            "per_consumer_qos", "direct_reply_to")) {
            equal(can.get(what), true);
        }
        check(server.get("product") instanceof LongString, server);
        equal(connection.getClientProvidedName(), name);
    }

    public void everyProperty() throws Exception {
        queue(name);
        var when = new Date(1700000000000L);
        var sent = new AMQP.BasicProperties.Builder()
            .contentType("text/plain").contentEncoding("utf-8").deliveryMode(2).priority(7)
            .correlationId("correlation").replyTo("reply").expiration("60000").messageId("id")
            .timestamp(when).type("type").userId("guest").appId("app").clusterId("cluster")
            .headers(table("one", 1)).build();
        channel.basicPublish("", name, sent, bytes("grün"));
        channel.basicPublish("", name, new AMQP.BasicProperties(), new byte[0]);
        var got = take(name);
        equal(text(got.getBody()), "grün");
        equal(got.getProps().toString(), sent.toString());
        equal(got.getEnvelope().getRoutingKey(), name);
        equal(got.getEnvelope().getExchange(), "");
        equal(got.getEnvelope().isRedeliver(), false);
        var empty = take(name);
        equal(empty.getBody().length, 0);
        equal(empty.getProps().toString(), new AMQP.BasicProperties().toString());
        equal(channel.basicGet(name, true), null);
    }

    public void everyTypeOfValue() throws Exception {
        queue(name);
        var deep = table("in", table("in", table("list", List.of(1, table("x", "y")))));
        var sent = table(
            "text", "täxt", "empty", "", "long text", "x".repeat(100000),
            "int", Integer.MIN_VALUE, "long", Long.MAX_VALUE, "short", (short) -2, "byte", (byte) -3,
            "float", 1.5f, "double", -2.5e100, "yes", true, "no", false, "none", null,
            "decimal", new BigDecimal("-12.345"), "whole", new BigDecimal("7"),
            "date", new Date(1700000000000L), "octets", new byte[] {0, -1, 127},
            "list", Arrays.asList("a", 1, null, List.of(true), 2.5), "nothing", List.of(),
            "array", new Object[] {"b", 2L}, "table", deep, "empty table", NONE,
            "long string", LongStringHelper.asLongString(new byte[] {(byte) 0xff, 0}));
        channel.basicPublish("", name, new AMQP.BasicProperties.Builder().headers(sent).build(), null);
        var headers = take(name).getProps().getHeaders();
        equal(((LongString) headers.remove("long string")).getBytes(), new byte[] {(byte) 0xff, 0});
        sent.remove("long string");
        var got = plain(headers);
        equal(got.remove("octets"), sent.remove("octets"));
        equal(got.remove("array"), List.of("b", 2L));
        sent.remove("array");
        equal(new TreeMap<>(got), new TreeMap<>(sent));
    }

    public void argumentsOfEveryTypeComeBackInErrors() throws Exception {
        queue(name);
        for (var value : List.of(5, 5L, (short) 5, (byte) 5)) {
            refused(406, "inequivalent arg 'x-message-ttl' for queue '" + name + "' in vhost '/': received the "
                + "value '5' of type '", c -> c.queueDeclare(name, false, true, false, table("x-message-ttl", value)));
        }
        refused(406, "inequivalent arg 'x-dead-letter-exchange' for queue '" + name + "' in vhost '/': received "
            + "the value 'amq.fanout' of type 'longstr' but current is none",
            c -> c.queueDeclare(name, false, true, false, table("x-dead-letter-exchange", "amq.fanout")));
    }

    public void bigMessagesInSmallFrames() throws Exception {
        var factory = factory();
        factory.setRequestedFrameMax(4096);
        factory.setRequestedChannelMax(3);
        var random = new Random(7);
        try (var small = factory.newConnection()) {
            equal(small.getFrameMax(), 4096);
            equal(small.getChannelMax(), 3);
            var large = channel;
            channel = small.createChannel();
            queue(name);
            for (int size : new int[] {4087, 4088, 4089, 8176, 1_000_003}) {
                var body = new byte[size];
                random.nextBytes(body);
                for (var publisher : List.of(channel, large)) {
                    publisher.basicPublish("", name, MessageProperties.PERSISTENT_BASIC, body);
                    equal(take(name).getBody(), body);
                }
            }
            small.createChannel();
            small.createChannel();
            equal(small.createChannel(), null);
        }
    }

    public void withoutBlockingSockets() throws Exception {
        var factory = factory();
        factory.useNio();
        try (var nio = factory.newConnection()) {
            var channel = nio.createChannel();
            queue(name);
            channel.confirmSelect();
            for (int i = 0; i < 300; i++) {
                channel.basicPublish("", name, null, bytes("" + i));
            }
            channel.waitForConfirmsOrDie(PATIENCE_S * 1000);
            equal(drained(name).size(), 300);
        }
    }

    // --- Publishers -----------------------------------------------------------------------------

    public void confirmsOneByOneAndInBatches() throws Exception {
        queue(name);
        channel.confirmSelect();
        for (int batch = 0; batch < 5; batch++) {
            for (int i = 0; i < 50; i++) {
                equal(channel.getNextPublishSeqNo(), batch * 50 + i + 1L);
                channel.basicPublish("", name, MessageProperties.PERSISTENT_TEXT_PLAIN, bytes("x"));
            }
            check(channel.waitForConfirms(PATIENCE_S * 1000), "confirmed");
        }
        channel.waitForConfirmsOrDie();
        equal(channel.messageCount(name), 250L);
    }

    public void confirmsToAListener() throws Exception {
        queue(name);
        channel.confirmSelect();
        var open = new ConcurrentSkipListSet<Long>();
        var nacked = new AtomicInteger();
        channel.addConfirmListener(
            (tag, multiple) -> (multiple ? open.headSet(tag, true) : open.subSet(tag, true, tag, true)).clear(),
            (tag, multiple) -> nacked.incrementAndGet());
        for (int i = 0; i < 1000; i++) {
            open.add(channel.getNextPublishSeqNo());
            channel.basicPublish("", name, null, bytes("" + i));
        }
        until(open::isEmpty);
        equal(nacked.get(), 0);
        equal(drained(name), IntStream.range(0, 1000).mapToObj(String::valueOf).collect(Collectors.toList()));
    }

    public void whatAFullQueueRefusesIsNacked() throws Exception {
        queue(name, "x-max-length", 1, "x-overflow", "reject-publish");
        channel.confirmSelect();
        var nacked = new CompletableFuture<Long>();
        channel.addConfirmListener((tag, multiple) -> { }, (tag, multiple) -> nacked.complete(tag));
        publish(name, "1");
        check(channel.waitForConfirms(), "there is room");
        publish(name, "2");
        equal(channel.waitForConfirms(), false);
        equal(soon(nacked), 2L);
        publish(name, "3");
        try {
            channel.waitForConfirmsOrDie();
            throw new AssertionError("a nack goes unnoticed");
        } catch (IOException expected) {
            equal(channel.isOpen(), false);
        }
    }

    public void returnedMessages() throws Exception {
        channel.confirmSelect();
        var events = new LinkedBlockingQueue<Object>();
        channel.addReturnListener((Return returned) -> events.add(returned));
        channel.addConfirmListener((tag, multiple) -> events.add(tag), (tag, multiple) -> events.add(-tag));
        channel.basicPublish("amq.direct", name, true, headers("a", 1), bytes("lost"));
        var returned = (Return) events.poll(PATIENCE_S, TimeUnit.SECONDS);
        equal(returned.getReplyCode(), AMQP.NO_ROUTE);
        equal(returned.getReplyText(), "NO_ROUTE");
        equal(returned.getExchange(), "amq.direct");
        equal(returned.getRoutingKey(), name);
        equal(text(returned.getBody()), "lost");
        equal(returned.getProperties().getHeaders(), table("a", 1));
        equal(events.poll(PATIENCE_S, TimeUnit.SECONDS), 1L);
    }

    public void transactions() throws Exception {
        queue(name);
        publish(name, "old");
        channel.txSelect();
        publish(name, "1", "2");
        equal(connection.createChannel().messageCount(name), 1L);
        channel.txRollback();
        publish(name, "3");
        var got = channel.basicGet(name, false);
        channel.basicAck(got.getEnvelope().getDeliveryTag(), false);
        channel.txCommit();
        publish(name, "4");
        channel.txCommit();
        channel.close();
        channel = connection.createChannel();
        equal(drained(name), List.of("3", "4"));
        refused(406, "PRECONDITION_FAILED - channel is not transactional", Channel::txCommit);
        refused(406, "cannot switch from tx to confirm mode", c -> {
            c.txSelect();
            c.confirmSelect();
        });
        refused(406, "cannot switch from confirm to tx mode", c -> {
            c.confirmSelect();
            c.txSelect();
        });
    }

    // --- Consumers ------------------------------------------------------------------------------

    public void acksOfEveryKind() throws Exception {
        queue(name);
        publish(name, "1", "2", "3", "4", "5", "6");
        var inbox = new Inbox(channel);
        var tag = channel.basicConsume(name, inbox);
        equal(soon(inbox.started), tag);
        check(tag.startsWith("amq.ctag-"), tag);
        Delivery[] got = new Delivery[6];
        for (int i = 0; i < 6; i++) {
            got[i] = inbox.next();
            equal(inbox.tag(got[i]), i + 1L);
            equal(got[i].getEnvelope().isRedeliver(), false);
        }
        channel.basicReject(inbox.tag(got[3]), true);
        var again = inbox.next();
        equal(text(again.getBody()), "4");
        equal(again.getEnvelope().isRedeliver(), true);
        channel.basicAck(2, true);
        channel.basicAck(3, false);
        channel.basicNack(inbox.tag(got[5]), true, true);
        equal(inbox.next(2), List.of("5", "6"));
        channel.basicReject(inbox.tag(again), false);
        channel.basicRecover(true);
        equal(inbox.next(2), List.of("5", "6"));
        channel.basicAck(0, true);
        channel.basicCancel(tag);
        equal(soon(inbox.ended), tag);
        equal(channel.messageCount(name), 0L);
        equal(channel.consumerCount(name), 0L);
    }

    public void callbacksOfAConsumer() throws Exception {
        queue(name);
        var got = new LinkedBlockingQueue<Delivery>();
        var cancelled = new CompletableFuture<String>();
        var closed = new CompletableFuture<ShutdownSignalException>();
        var tag = channel.basicConsume(name, true, "mine", false, false, NONE,
            (t, delivery) -> got.add(delivery), cancelled::complete, (t, signal) -> closed.complete(signal));
        equal(tag, "mine");
        publish(name, "x");
        equal(text(got.poll(PATIENCE_S, TimeUnit.SECONDS).getBody()), "x");
        connection.createChannel().queueDelete(name);
        equal(soon(cancelled), "mine");
        channel.basicConsume(queue(name), true, (t, delivery) -> { }, (t, signal) -> closed.complete(signal));
        channel.close();
        check(soon(closed).isInitiatedByApplication(), "closed by us");
    }

    public void aPrefetchForAConsumerAndForAChannel() throws Exception {
        queue(name);
        publish(name, "1", "2", "3", "4", "5");
        channel.basicQos(0, 3, true);
        channel.basicQos(2);
        var first = new Inbox(channel);
        var second = new Inbox(channel);
        channel.basicConsume(name, first);
        equal(first.next(2), List.of("1", "2"));
        channel.basicConsume(name, second);
        equal(second.next(1), List.of("3"));
        equal(channel.messageCount(name), 2L);
        channel.basicAck(0, true);
        until(() -> first.got.size() + second.got.size() == 2);
    }

    public void exclusiveConsumersAndOwnMessages() throws Exception {
        queue(name);
        channel.basicConsume(name, false, "", false, true, NONE, new Inbox(channel));
        refused(403, "ACCESS_REFUSED - queue '" + name + "' in vhost '/' in exclusive use",
            c -> c.basicConsume(name, new Inbox(c)));
    }

    public void manyThreadsAndChannels() throws Exception {
        var pool = Executors.newFixedThreadPool(8);
        var sums = IntStream.range(0, 8).mapToObj(number -> pool.submit(() -> {
            var mine = connection.createChannel();
            var queue = mine.queueDeclare().getQueue();
            var inbox = new Inbox(mine);
            mine.basicQos(10);
            mine.basicConsume(queue, inbox);
            mine.confirmSelect();
            int sum = 0;
            for (int i = 0; i < 100; i++) {
                mine.basicPublish("", queue, null, bytes("" + i));
                var delivery = inbox.next();
                sum += Integer.parseInt(text(delivery.getBody()));
                mine.basicAck(inbox.tag(delivery), false);
            }
            mine.waitForConfirmsOrDie();
            mine.close();
            return sum;
        })).collect(Collectors.toList());
        for (var sum : sums) {
            equal(sum.get(PATIENCE_S, TimeUnit.SECONDS), 4950);
        }
        pool.shutdown();
    }

    // --- Queues and exchanges -------------------------------------------------------------------

    public void queuesAndTheirCounts() throws Exception {
        var own = channel.queueDeclare();
        check(own.getQueue().startsWith("amq.gen-"), own.getQueue());
        channel.queueDeclareNoWait(name, false, true, false, NONE);
        publish(name, "1", "2", "3");
        channel.basicConsume(own.getQueue(), new Inbox(channel));
        var told = channel.queueDeclarePassive(name);
        equal(told.getMessageCount(), 3);
        equal(told.getConsumerCount(), 0);
        equal(channel.queueDeclarePassive(own.getQueue()).getConsumerCount(), 1);
        refused(406, "queue '" + name + "' in vhost '/' not empty", c -> c.queueDelete(name, false, true));
        refused(406, "queue '" + own.getQueue() + "' in vhost '/' in use",
            c -> c.queueDelete(own.getQueue(), true, false));
        equal(channel.queuePurge(name).getMessageCount(), 3);
        publish(name, "4");
        equal(channel.queueDelete(name).getMessageCount(), 1);
        equal(channel.queueDelete(name).getMessageCount(), 0);
        channel.queueBind(own.getQueue(), "amq.topic", "a.*.#", null);
        channel.basicPublish("amq.topic", "a.b", null, bytes("x"));
        channel.queueUnbind(own.getQueue(), "amq.topic", "a.*.#");
        channel.queueDeleteNoWait(own.getQueue(), false, false);
        channel.exchangeDeclarePassive("amq.topic");
    }

    public void exchangesOfEveryType() throws Exception {
        queue(name);
        for (var type : BuiltinExchangeType.values()) {
            var exchange = name + type;
            channel.exchangeDeclare(exchange, type, false, true, null);
            var arguments = table("x-match", "any", "number", 7, "text", "a", "none", null);
            channel.queueBind(name, exchange, type == BuiltinExchangeType.TOPIC ? "*.k.#" : "k", arguments);
            for (var key : List.of("k", "a.k", "a.k.b.c", "x")) {
                channel.basicPublish(exchange, key, headers("number", key.length(), "text", "b"), bytes(key));
            }
            channel.basicPublish(exchange, "h", headers("text", "a"), bytes("h"));
        }
        equal(drained(name), List.of(
            "k", "k", "a.k", "a.k.b.c", "x", "h", "a.k", "a.k.b.c", "a.k.b.c", "h"));
        var all = name + ".all";
        channel.exchangeDeclare(all, "headers");
        channel.queueBind(name, all, "", table("x-match", "all", "a", 1, "b", "two"));
        channel.basicPublish(all, "", headers("a", 1L, "b", "two", "c", 3), bytes("both"));
        channel.basicPublish(all, "", headers("a", 1), bytes("one"));
        equal(drained(name), List.of("both"));
        channel.exchangeDelete(all, false);
        channel.exchangeDelete(all);
    }

    public void bindingsBetweenExchangesAndAlternates() throws Exception {
        queue(name);
        var spare = name + ".spare";
        channel.exchangeDeclare(spare, "fanout", false, true, null);
        channel.queueBind(name, spare, "");
        channel.exchangeDeclare(name, "direct", false, false, table("alternate-exchange", spare));
        var inner = name + ".inner";
        channel.exchangeDeclare(inner, "topic", false, false, true, null);
        channel.exchangeBind(inner, name, "k");
        var other = queue(name + ".other");
        channel.queueBind(other, inner, "#");
        channel.basicPublish(name, "k", null, bytes("inner"));
        channel.basicPublish(name, "nobody", null, bytes("spare"));
        equal(drained(other), List.of("inner"));
        equal(drained(name), List.of("spare"));
        channel.exchangeUnbind(inner, name, "k");
        channel.basicPublish(name, "k", true, null, bytes("spare too"));
        equal(drained(name), List.of("spare too"));
        channel.exchangeBindNoWait(inner, name, "k", NONE);
        channel.exchangeUnbindNoWait(inner, name, "k", NONE);
        refused(403, "cannot publish to internal exchange '" + inner + "' in vhost '/'",
            c -> c.basicPublish(inner, "k", null, bytes("x")));
        channel.exchangeDeleteNoWait(inner, false);
        channel.exchangeDelete(name);
    }

    // --- Errors ---------------------------------------------------------------------------------

    public void whyChannelsAreClosed() throws Exception {
        queue(name);
        var no = name + ".no";
        refused(404, "NOT_FOUND - no queue '" + no + "' in vhost '/'", c -> c.queueDeclarePassive(no));
        refused(404, "NOT_FOUND - no queue '" + no + "' in vhost '/'", c -> c.basicGet(no, true));
        refused(404, "NOT_FOUND - no exchange '" + no + "' in vhost '/'", c -> c.exchangeDeclarePassive(no));
        refused(404, "NOT_FOUND - no exchange '" + no + "' in vhost '/'",
            c -> c.basicPublish(no, "", null, bytes("x")));
        refused(404, "NOT_FOUND - no previously declared queue", c -> c.basicConsume("", new Inbox(c)));
        refused(406, "PRECONDITION_FAILED - inequivalent arg 'durable' for queue '" + name + "' in vhost '/': "
            + "received 'true' but current is 'false'", c -> c.queueDeclare(name, true, true, false, null));
        refused(406, "unknown delivery tag 9", c -> c.basicAck(9, false));
        refused(406, "invalid expiration 'soon': ", c -> c.basicPublish(
            "", name, new AMQP.BasicProperties.Builder().expiration("soon").build(), bytes("x")));
        refused(403, "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'",
            c -> c.queueDeclare("amq.mine", false, false, false, null));
        refused(403, "ACCESS_REFUSED - operation not permitted on the default exchange",
            c -> c.queueBind(name, "", "k"));
        refused(403, "operation not permitted on the default exchange", c -> c.exchangeDelete(""));
        try (var other = factory().newConnection()) {
            other.createChannel().queueDeclarePassive(name);
            throw new AssertionError("an exclusive queue is for all");
        } catch (IOException thrown) {
            var reason = (AMQP.Channel.Close) ((ShutdownSignalException) thrown.getCause()).getReason();
            equal(reason.getReplyCode(), AMQP.RESOURCE_LOCKED);
            check(reason.getReplyText().startsWith("RESOURCE_LOCKED - cannot obtain exclusive access to locked "
                + "queue '" + name + "' in vhost '/'"), reason);
            equal(reason.getClassId(), 50);
            equal(reason.getMethodId(), 10);
        }
    }

    public void whyConnectionsAreClosed() throws Exception {
        queue(name);
        for (var words : Map.<String, Act>of(
            "503 COMMAND_INVALID - unknown exchange type 'odd'", c -> c.exchangeDeclare(name, "odd"),
            "530 NOT_ALLOWED - attempt to reuse consumer tag 't'", c -> {
                var queue = c.queueDeclare().getQueue();
                c.basicConsume(queue, true, "t", new Inbox(c));
                c.basicConsume(queue, true, "t", new Inbox(c));
            }).entrySet()) {
            var other = factory().newConnection();
            var closed = new CompletableFuture<ShutdownSignalException>();
            other.addShutdownListener(closed::complete);
            var channel = other.createChannel();
            try {
                words.getValue().on(channel);
                throw new AssertionError("nothing is refused");
            } catch (IOException expected) {
                var signal = soon(closed);
                check(signal.isHardError(), signal);
                var reason = (AMQP.Connection.Close) signal.getReason();
                equal(reason.getReplyCode() + " " + reason.getReplyText(), words.getKey());
            }
            try {
                channel.queueDeclare();
                throw new AssertionError("a closed channel goes on");
            } catch (AlreadyClosedException expected) {
                check(expected.isHardError(), expected);
            }
        }
    }

    // --- Answers --------------------------------------------------------------------------------

    public void requestsWithoutWaitingForAnswers() throws Exception {
        var answer = channel.asyncCompletableRpc(
            new AMQP.Queue.Declare.Builder().queue(name).exclusive(true).build());
        equal(((AMQP.Queue.DeclareOk) soon(answer).getMethod()).getQueue(), name);
        var bound = channel.rpc(new AMQP.Queue.Bind.Builder().queue(name).exchange("amq.fanout").build());
        check(bound.getMethod() instanceof AMQP.Queue.BindOk, bound);
        var flow = channel.rpc(new AMQP.Channel.Flow.Builder().active(true).build());
        equal(((AMQP.Channel.FlowOk) flow.getMethod()).getActive(), true);
    }
}
