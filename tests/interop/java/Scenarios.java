// SPDX-License-Identifier: Apache-2.0

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.AlreadyClosedException;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.Envelope;
import com.rabbitmq.client.GetResponse;
import com.rabbitmq.client.LongString;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** What every scenario has: a connection, a channel, a name of its own, and ways to wait and to look. */
abstract class Scenarios {
    static final int PATIENCE_S = 60;
    static final Map<String, Object> NONE = Map.of();

    /** Its name; queues and exchanges that it makes begin with it. */
    String name;
    Connection connection;
    Channel channel;

    /** Whoever does something that may be refused. */
    interface Act {
        void on(Channel channel) throws Exception;
    }

    void begin(String scenario) throws Exception {
        name = "java." + scenario + "." + UUID.randomUUID().toString().substring(0, 8);
        connection = factory().newConnection(name);
        channel = connection.createChannel();
    }

    void end() {
        connection.abort();
    }

    static String told(String property) {
        return Objects.requireNonNull(System.getProperty(property), property);
    }

    /** Connections to the broker that all scenarios share. */
    ConnectionFactory factory() throws Exception {
        var factory = new ConnectionFactory();
        factory.setUri(told("url"));
        factory.setAutomaticRecoveryEnabled(false);
        return factory;
    }

    /** Connections to a broker of our own, which operators work with. */
    static ConnectionFactory kept() throws Exception {
        var factory = new ConnectionFactory();
        factory.setUri(told("kept"));
        factory.setAutomaticRecoveryEnabled(false);
        return factory;
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] body) {
        return new String(body, StandardCharsets.UTF_8);
    }

    static void equal(Object got, Object wanted) {
        if (!Objects.deepEquals(got, wanted)) {
            throw new AssertionError("got " + shown(got) + " instead of " + shown(wanted));
        }
    }

    private static String shown(Object value) {
        return value == null ? "null" : value + " (" + value.getClass().getSimpleName() + ")";
    }

    static void check(boolean holds, Object about) {
        if (!holds) {
            throw new AssertionError(String.valueOf(about));
        }
    }

    static <T> T soon(CompletableFuture<T> future) throws Exception {
        return future.get(PATIENCE_S, TimeUnit.SECONDS);
    }

    static void until(Callable<Boolean> holds) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        while (!holds.call()) {
            check(System.nanoTime() < deadline, "it did not come to pass");
            Thread.sleep(5);
        }
    }

    /** A table with its texts as texts, and tables and arrays within as such. */
    static Map<String, Object> plain(Map<String, Object> table) {
        var found = new HashMap<String, Object>();
        table.forEach((key, value) -> found.put(key, plain(value)));
        return found;
    }

    @SuppressWarnings("unchecked")
    static Object plain(Object value) {
        if (value instanceof LongString) {
            return value.toString();
        }
        if (value instanceof Map) {
            return plain((Map<String, Object>) value);
        }
        if (value instanceof List) {
            var found = new ArrayList<Object>();
            ((List<Object>) value).forEach(one -> found.add(plain(one)));
            return found;
        }
        return value;
    }

    static AMQP.BasicProperties headers(Object... namesAndValues) {
        return new AMQP.BasicProperties.Builder().headers(table(namesAndValues)).build();
    }

    static Map<String, Object> table(Object... namesAndValues) {
        var found = new HashMap<String, Object>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            found.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return found;
    }

    /** An exclusive queue. */
    String queue(String queue, Object... arguments) throws IOException {
        return channel.queueDeclare(queue, false, true, false, table(arguments)).getQueue();
    }

    void publish(String queue, String... bodies) throws IOException {
        for (var body : bodies) {
            channel.basicPublish("", queue, null, bytes(body));
        }
    }

    /** A message that must come, and is settled. */
    GetResponse take(String queue) throws Exception {
        var got = new GetResponse[1];
        until(() -> (got[0] = channel.basicGet(queue, true)) != null);
        return got[0];
    }

    /** The bodies of all that is ready. */
    List<String> drained(String queue) throws IOException {
        var found = new ArrayList<String>();
        for (GetResponse got; (got = channel.basicGet(queue, true)) != null; ) {
            found.add(text(got.getBody()));
        }
        return found;
    }

    /** Try what must close a channel, with this code and text. */
    void refused(int code, String words, Act act) throws Exception {
        var channel = connection.createChannel();
        var said = new CompletableFuture<ShutdownSignalException>();
        channel.addShutdownListener(said::complete);
        try {
            act.on(channel);
        } catch (AlreadyClosedException thrown) {
            equal(thrown.isHardError(), false);
        } catch (IOException thrown) {
            check(thrown.getCause() instanceof ShutdownSignalException, thrown);
        }
        var signal = soon(said);
        equal(signal.isHardError(), false);
        equal(signal.isInitiatedByApplication(), false);
        var reason = (AMQP.Channel.Close) signal.getReason();
        check(reason.getReplyText().contains(words), reason);
        equal(reason.getReplyCode(), code);
        equal(channel.isOpen(), false);
        check(connection.isOpen(), "the connection remains");
    }

    /** A consumer that keeps what it gets. */
    static final class Inbox extends DefaultConsumer {
        final LinkedBlockingQueue<Delivery> got = new LinkedBlockingQueue<>();
        final CompletableFuture<String> started = new CompletableFuture<>();
        final CompletableFuture<String> ended = new CompletableFuture<>();
        final CompletableFuture<String> cancelled = new CompletableFuture<>();
        final CompletableFuture<String> recovered = new CompletableFuture<>();
        final CompletableFuture<ShutdownSignalException> closed = new CompletableFuture<>();

        Inbox(Channel channel) {
            super(channel);
        }

        @Override
        public void handleDelivery(
            String tag, Envelope envelope, AMQP.BasicProperties properties, byte[] body) {
            got.add(new Delivery(envelope, properties, body));
        }

        @Override
        public void handleConsumeOk(String tag) {
            super.handleConsumeOk(tag);
            started.complete(tag);
        }

        @Override
        public void handleCancelOk(String tag) {
            ended.complete(tag);
        }

        @Override
        public void handleCancel(String tag) {
            cancelled.complete(tag);
        }

        @Override
        public void handleRecoverOk(String tag) {
            recovered.complete(tag);
        }

        @Override
        public void handleShutdownSignal(String tag, ShutdownSignalException signal) {
            closed.complete(signal);
        }

        Delivery next() throws Exception {
            var delivery = got.poll(PATIENCE_S, TimeUnit.SECONDS);
            check(delivery != null, "nothing is delivered");
            return delivery;
        }

        /** The bodies of the next so many. */
        List<String> next(int count) throws Exception {
            var found = new ArrayList<String>();
            while (found.size() < count) {
                found.add(text(next().getBody()));
            }
            return found;
        }

        long tag(Delivery delivery) {
            return delivery.getEnvelope().getDeliveryTag();
        }
    }
}
