package board;

import java.util.LinkedHashMap;
import java.util.Map;

/** Small map that forgets the least recently used entry and every entry older than its lifetime (ms). */
final class Cache<K, V> {
    private record Entry<V>(V value, long untilMs) {
    }

    private final long lifetimeMs;
    private final Map<K, Entry<V>> entries;

    Cache(int capacity, long lifetimeMs) {
        this.lifetimeMs = lifetimeMs;
        this.entries = new LinkedHashMap<>(64, 0.75f, true) {
            private static final long serialVersionUID = 1L;

            @Override
            protected boolean removeEldestEntry(Map.Entry<K, Entry<V>> eldest) {
                return size() > capacity;
            }
        };
    }

    synchronized V get(K key) {
        Entry<V> entry = entries.get(key);
        if (entry == null) {
            return null;
        }
        if (entry.untilMs() < System.currentTimeMillis()) {
            entries.remove(key);
            return null;
        }
        return entry.value();
    }

    synchronized void put(K key, V value) {
        entries.put(key, new Entry<>(value, System.currentTimeMillis() + lifetimeMs));
    }

    synchronized void remove(K key) {
        entries.remove(key);
    }
}
