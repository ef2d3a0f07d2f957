package board;

import java.util.HashMap;
import java.util.Map;

/** Builds one HTML page. Text is escaped, lightly formatted, and examined {@code work} times for its key words. */
final class Page {
    private final StringBuilder out = new StringBuilder(8192);
    private final int work;
    private final Map<String, Integer> words = new HashMap<>();

    Page(int work, String title) {
        this.work = work;
        out.append("<!DOCTYPE html><html><head><meta charset=\"utf-8\"><title>");
        escape(title);
        out.append("</title></head><body><h1>");
        escape(title);
        out.append("</h1>\n");
    }

    private void escape(String text) {
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            switch (c) {
                case '<' -> out.append("&lt;");
                case '>' -> out.append("&gt;");
                case '&' -> out.append("&amp;");
                case '"' -> out.append("&quot;");
                default -> out.append(c);
            }
        }
    }

    Page heading(String text) {
        out.append("<h2>");
        escape(text);
        out.append("</h2>\n");
        return this;
    }

    Page link(String target, String text) {
        out.append("<a href=\"/board/").append(target).append("\">");
        escape(text);
        out.append("</a> ");
        return this;
    }

    Page line(String text) {
        out.append("<p>");
        escape(text);
        out.append("</p>\n");
        return this;
    }

    /** A body text: *word* becomes bold, blank lines become paragraphs, and the key words are counted. */
    Page body(String text) {
        for (int pass = 0; pass < work; pass++) {
            count(text);
        }
        out.append("<div><p>");
        boolean bold = false;
        int from = 0;
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '*') {
                escape(text.substring(from, i));
                out.append(bold ? "</b>" : "<b>");
                bold = !bold;
                from = i + 1;
            } else if (c == '\n') {
                escape(text.substring(from, i));
                out.append("</p><p>");
                from = i + 1;
            }
        }
        escape(text.substring(from));
        out.append(bold ? "</b></p></div>\n" : "</p></div>\n");
        return this;
    }

    private void count(String text) {
        int from = -1;
        for (int i = 0; i <= text.length(); i++) {
            boolean letter = i < text.length() && Character.isLetter(text.charAt(i));
            if (letter && from < 0) {
                from = i;
            } else if (!letter && from >= 0) {
                if (i - from > 3) {
                    words.merge(text.substring(from, i).toLowerCase(), 1, Integer::sum);
                }
                from = -1;
            }
        }
    }

    /** Number of characters that stand in the page so far and were not taken yet. */
    int pending() {
        return out.length();
    }

    /** Takes what was rendered so far; used to send the upper part of a long page early. */
    String take() {
        String part = out.toString();
        out.setLength(0);
        return part;
    }

    /** Ends the page: the most frequent key words as a footer, found by passing over the whole page again. */
    String finish() {
        String sofar = out.toString();
        for (int pass = 0; pass < work; pass++) {
            count(sofar);
        }
        out.append("<hr><p>Words: ");
        words.entrySet().stream()
                .sorted(Map.Entry.<String, Integer>comparingByValue().reversed()
                        .thenComparing(Map.Entry.comparingByKey()))
                .limit(5)
                .forEach(e -> out.append(e.getKey()).append(' '));
        out.append("</p></body></html>\n");
        return take();
    }
}
