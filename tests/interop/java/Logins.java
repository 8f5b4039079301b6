// SPDX-License-Identifier: Apache-2.0

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Address;
import com.rabbitmq.client.AuthenticationFailureException;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultSaslConfig;
import com.rabbitmq.client.LongString;
import com.rabbitmq.client.SaslMechanism;
import com.rabbitmq.client.ShutdownSignalException;
import com.rabbitmq.client.impl.LongStringHelper;
import java.io.FileInputStream;
import java.io.IOException;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLException;
import javax.net.ssl.TrustManagerFactory;

/** How connections come to be, and what keeps them. */
final class Logins extends Scenarios {
    private static final char[] SECRET = "secret".toCharArray();

    @Override
    ConnectionFactory factory() throws Exception {
        return kept();
    }

    private static SSLContext context(String certificate) throws Exception {
        var trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null, null);
        try (var file = new FileInputStream(told("authority"))) {
            trusted.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(trusted);
        var keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        if (certificate != null) {
            var own = KeyStore.getInstance("PKCS12");
            try (var file = new FileInputStream(certificate)) {
                own.load(file, SECRET);
            }
            keys.init(own, SECRET);
        }
        var context = SSLContext.getInstance("TLS");
        context.init(certificate == null ? null : keys.getKeyManagers(), trust.getTrustManagers(), null);
        return context;
    }

    private ConnectionFactory secured(SSLContext context) throws Exception {
        var factory = factory();
        factory.setHost("localhost");
        factory.setPort(Integer.parseInt(told("tls")));
        factory.useSslProtocol(context);
        return factory;
    }

    private static void works(Connection connection) throws Exception {
        var channel = connection.createChannel();
        var queue = channel.queueDeclare().getQueue();
        channel.confirmSelect();
        channel.basicPublish("", queue, null, new byte[300_000]);
        channel.waitForConfirmsOrDie();
        equal(channel.basicGet(queue, true).getBody().length, 300_000);
        connection.close();
    }

    public void anAuthorityThatWeTrust() throws Exception {
        works(secured(context(told("certificate"))).newConnection());
    }

    public void aLoginByCertificate() throws Exception {
        var factory = secured(context(told("certificate")));
        factory.setSaslConfig(DefaultSaslConfig.EXTERNAL);
        works(factory.newConnection());
        factory.setUsername("");
        works(factory.newConnection());
        try {
            secured(context(null)).newConnection();
            throw new AssertionError("anybody may come");
        } catch (IOException expected) {
            check(!(expected instanceof AuthenticationFailureException), expected);
        }
    }

    public void anAuthorityThatWeDoNotTrust() throws Exception {
        var factory = factory();
        factory.setHost("localhost");
        factory.setPort(Integer.parseInt(told("tls")));
        factory.useSslProtocol(SSLContext.getDefault());
        try {
            factory.newConnection();
            throw new AssertionError("anybody may say that he is localhost");
        } catch (SSLException expected) {
            check(expected.getMessage().contains("unable to find valid certification path"), expected);
        }
    }

    public void wrongPasswordsAndPlaces() throws Exception {
        var factory = factory();
        factory.setPassword("wrong");
        try {
            factory.newConnection();
            throw new AssertionError("anybody may log in");
        } catch (AuthenticationFailureException expected) {
            equal(expected.getMessage(), "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. "
                + "For details see the broker logfile.");
        }
        factory.setPassword("guest");
        factory.setVirtualHost("nowhere");
        try {
            factory.newConnection();
            throw new AssertionError("there is no such place");
        } catch (IOException thrown) {
            var reason = (AMQP.Connection.Close) ((ShutdownSignalException) thrown.getCause()).getReason();
            equal(reason.getReplyCode(), AMQP.NOT_ALLOWED);
            equal(reason.getReplyText(), "NOT_ALLOWED - vhost nowhere not found");
        }
    }

    public void aMechanismOfOnesOwn() throws Exception {
        var factory = factory();
        factory.setSaslConfig(mechanisms -> {
            check(List.of(mechanisms).contains("SCRAM-SHA-256"), List.of(mechanisms));
            return new SaslMechanism() {
                @Override
                public String getName() {
                    return "AMQPLAIN";
                }

                @Override
                public LongString handleChallenge(LongString challenge, String user, String password) {
                    equal(challenge, null);
                    return LongStringHelper.asLongString(
                        "\5LOGINS\0\0\0\5guest\10PASSWORDS\0\0\0\5guest");
                }
            };
        });
        works(factory.newConnection());
    }

    public void severalAddresses() throws Exception {
        var factory = factory();
        var addresses = List.of(
            new Address("127.0.0.1", 1), new Address(factory.getHost(), factory.getPort()));
        works(factory.newConnection(addresses));
    }

    public void heartbeats() throws Exception {
        var factory = factory();
        factory.setRequestedHeartbeat(2);
        for (int tries = 3; ; tries--) {  // A machine that stands still for so long loses it all the same.
            var beating = factory.newConnection();
            equal(beating.getHeartbeat(), 2);
            var lost = new CompletableFuture<ShutdownSignalException>();
            beating.addShutdownListener(lost::complete);
            try {  // Either side would end it after four seconds without a sign of the other.
                var why = lost.get(5, TimeUnit.SECONDS);
                check(tries > 1, why);
            } catch (TimeoutException expected) {
                works(beating);
                return;
            }
        }
    }
}
