// SPDX-License-Identifier: Apache-2.0

import com.rabbitmq.client.ConnectionFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** What clients notice of operators' commands. */
final class Operators extends Scenarios {
    @Override
    ConnectionFactory factory() throws Exception {
        return kept();
    }

    public void anAlarmBlocksPublishers() throws Exception {
        var factory = factory();
        factory.setVirtualHost("held");
        try (var held = factory.newConnection()) {
            var told = new LinkedBlockingQueue<String>();
            held.addBlockedListener(reason -> told.add("blocked: " + reason), () -> told.add("unblocked"));
            var channel = held.createChannel();
            var queue = channel.queueDeclare().getQueue();
            channel.confirmSelect();
            Main.ask("alarm", "set", "--vhost", "held", "--reason", "moving house");
            channel.basicPublish("", queue, null, bytes("waits"));
            equal(told.poll(PATIENCE_S, TimeUnit.SECONDS), "blocked: moving house");
            Main.ask("alarm", "clear", "--vhost", "held");
            equal(told.poll(PATIENCE_S, TimeUnit.SECONDS), "unblocked");
            channel.waitForConfirmsOrDie();
            equal(channel.messageCount(queue), 1L);
        }
    }

    public void policiesHold() throws Exception {
        var dead = queue(name + "-dead");
        channel.queueDeclare(name, false, false, false, NONE);
        publish(name, "1", "2", "3");
        Main.ask("policy", "set", name, "^" + name + "$", "{\"max-length\": 1, \"dead-letter-exchange\": \"\", "
            + "\"dead-letter-routing-key\": \"" + dead + "\"}");
        var letters = new ArrayList<String>();
        until(() -> letters.addAll(drained(dead)) && letters.size() == 2);
        equal(letters, List.of("1", "2"));
        Main.ask("policy", "clear", name);
        channel.queueDelete(name);
    }
}
