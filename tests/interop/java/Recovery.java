// SPDX-License-Identifier: Apache-2.0

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.MessageProperties;
import com.rabbitmq.client.Recoverable;
import com.rabbitmq.client.RecoverableConnection;
import com.rabbitmq.client.RecoveryListener;
import com.rabbitmq.client.ShutdownSignalException;
import com.rabbitmq.client.impl.recovery.AutorecoveringConnection;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** The client restores connections, channels, topology and consumers by itself. */
final class Recovery extends Scenarios {
    @Override
    ConnectionFactory factory() throws Exception {
        var factory = kept();
        factory.setAutomaticRecoveryEnabled(true);
        factory.setNetworkRecoveryInterval(20);
        return factory;
    }

    /** A client that has a bit of everything, and what becomes of it. */
    private final class Client {
        final AutorecoveringConnection connection;
        final CompletableFuture<ShutdownSignalException> lost = new CompletableFuture<>();
        final CompletableFuture<Recoverable> recovered = new CompletableFuture<>();
        final CompletableFuture<String> renamed = new CompletableFuture<>();
        final Channel channel;
        final Inbox lasting;
        final Inbox passing;
        final String name;
        final String temporary;

        Client(String name, boolean nio) throws Exception {
            this.name = name;
            var factory = factory();
            if (nio) {
                factory.useNio();
            }
            connection = (AutorecoveringConnection) factory.newConnection(name);
            connection.addShutdownListener(lost::complete);
            connection.addQueueRecoveryListener((old, now) -> {
                if (!old.equals(now)) {
                    renamed.complete(now);
                }
            });
            ((RecoverableConnection) connection).addRecoveryListener(new RecoveryListener() {
                @Override
                public void handleRecovery(Recoverable recoverable) {
                    recovered.complete(recoverable);
                }

                @Override
                public void handleRecoveryStarted(Recoverable recoverable) {
                }
            });
            channel = connection.createChannel();
            channel.basicQos(5);
            channel.exchangeDeclare(name, "topic", true);
            channel.exchangeDeclare(name + ".passing", "fanout", false, true, null);
            channel.exchangeBind(name + ".passing", name, "#");
            channel.queueDeclare(name, true, false, false, table("x-max-length", 1000));
            channel.queueBind(name, name, "a.*");
            temporary = channel.queueDeclare().getQueue();
            channel.queueBind(temporary, name + ".passing", "");
            lasting = new Inbox(channel);
            passing = new Inbox(channel);
            channel.basicConsume(name, false, "lasting", lasting);
            channel.basicConsume(temporary, true, "passing", passing);
            channel.confirmSelect();
        }

        void publish(String body) throws Exception {
            channel.basicPublish(name, "a.b", MessageProperties.PERSISTENT_BASIC, bytes(body));
            channel.waitForConfirmsOrDie(PATIENCE_S * 1000);
        }

        void before() throws Exception {
            publish("before");
            equal(text(lasting.next().getBody()), "before");
            equal(passing.next(1), List.of("before"));
        }

        void after(String reason) throws Exception {
            var signal = soon(lost);
            equal(signal.isInitiatedByApplication(), false);
            var said = (AMQP.Connection.Close) signal.getReason();
            equal(said.getReplyCode() + " " + said.getReplyText(), "320 CONNECTION_FORCED - " + reason);
            equal(soon(recovered), connection);
            check(soon(renamed).startsWith("amq.gen-"), renamed);
            check(!renamed.get().equals(temporary), "another name");
            var again = lasting.next();
            equal(text(again.getBody()), "before");
            equal(again.getEnvelope().isRedeliver(), true);
            publish("after");
            channel.basicAck(lasting.tag(again), false);
            var after = lasting.next();
            equal(text(after.getBody()), "after");
            equal(after.getEnvelope().isRedeliver(), false);
            equal(passing.next(1), List.of("after"));
            channel.basicAck(lasting.tag(after), true);
            channel.basicCancel("lasting");
            equal(channel.queueDelete(name).getMessageCount(), 0);
            channel.exchangeDelete(name);
            connection.close();
        }
    }

    public void aBrokerThatIsRestarted() throws Exception {
        var clients = List.of(new Client(name + ".io", false), new Client(name + ".nio", true));
        for (var client : clients) {
            client.before();
        }
        Main.ask("restart");
        for (var client : clients) {
            client.after("broker forced connection closure with reason 'shutdown'");
        }
    }

    public void anOperatorWhoClosesConnections() throws Exception {
        var client = new Client(name + ".client", false);
        client.before();
        Main.ask("close", "connections", "--all", "--reason", "go away");
        client.after("go away");
    }
}
