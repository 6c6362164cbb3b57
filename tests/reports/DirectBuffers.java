// A cache of 40 direct buffers: memory beyond -Xmx ("Cannot reserve bytes of direct buffer memory").
import java.nio.ByteBuffer;
import java.util.*;
public class DirectBuffers {
    static final Map<Integer, ByteBuffer> cache = new HashMap<>();
    public static void main(String[] a) throws Exception {
        for (int i = 0; i < 40; i++) { ByteBuffer b = ByteBuffer.allocateDirect(1_500_000); for (int k = 0; k < 1_500_000; k += 4096) b.put(k, (byte) 7); cache.put(i, b); }
        System.out.println("READY");
        Thread.sleep(600_000);
    }
}
