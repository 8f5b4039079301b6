// SPDX-License-Identifier: Apache-2.0

import com.rabbitmq.tools.json.JSONWriter;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Runs every scenario of the classes that it is given, several at once, and those of the last class
 * after the others, since they restart the broker. Prints a JSON object a line: what became of a
 * scenario, or what is asked of whoever started this, who answers by a line.
 */
public final class Main {
    private static final BufferedReader ANSWERS =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    private static final int AT_ONCE = 4;
    private static final int PATIENCE_S = 100;

    public static void main(String[] classes) throws Exception {
        var last = Arrays.copyOfRange(classes, classes.length - 1, classes.length);
        run(Arrays.copyOf(classes, classes.length - 1), AT_ONCE);
        run(last, 1);
        System.exit(0);
    }

    private static void run(String[] classes, int atOnce) throws Exception {
        var pool = Executors.newFixedThreadPool(atOnce);
        var done = new ArrayList<Future<?>>();
        for (var name : classes) {
            for (var method : Class.forName(name).getDeclaredMethods()) {
                if (Modifier.isPublic(method.getModifiers())) {
                    done.add(pool.submit(() -> run(method)));
                }
            }
        }
        for (var one : done) {
            try {
                one.get(PATIENCE_S, TimeUnit.SECONDS);
            } catch (TimeoutException late) {
                one.cancel(true);
            }
        }
        pool.shutdown();
    }

    private static void run(Method method) {
        String failure = null;
        long start = System.nanoTime();
        try {
            var scenarios = (Scenarios) method.getDeclaringClass().getDeclaredConstructor().newInstance();
            scenarios.begin(method.getName());
            try {
                method.invoke(scenarios);
            } finally {
                scenarios.end();
            }
        } catch (Throwable thrown) {
            var text = new StringWriter();
            thrown.printStackTrace(new PrintWriter(text));
            failure = text.toString();
        }
        var said = new HashMap<String, Object>();
        said.put("scenario", method.getName());
        said.put("failure", failure);
        said.put("ms", (System.nanoTime() - start) / 1000000);
        say(said);
    }

    /** Ask whoever started this for something, and wait until it is done. */
    static synchronized void ask(String... words) throws Exception {
        say(Map.of("ask", List.of(words)));
        if (ANSWERS.readLine() == null) {
            throw new AssertionError("nobody answers");
        }
    }

    private static void say(Map<String, Object> what) {
        var line = new JSONWriter().write(what);
        synchronized (System.out) {
            System.out.println(line);
        }
    }
}
