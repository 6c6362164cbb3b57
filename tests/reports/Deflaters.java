// Deflaters and Inflaters that nobody ends: C memory beyond -Xmx (HdrHistogram/HdrHistogram#85).
import java.util.*;
import java.util.zip.*;

public class Deflaters {
    static final List<Object> kept = new ArrayList<>();

    public static void main(String[] a) throws Exception {
        byte[] in = new byte[3000];
        byte[] out = new byte[4000];
        for (int i = 0; i < 600; i++) {
            Deflater d = new Deflater();
            d.setInput(in);
            d.finish();
            int n = d.deflate(out);
            Inflater f = new Inflater();
            f.setInput(out, 0, n);
            f.inflate(new byte[3000]);
            kept.add(d);
            kept.add(f);
        }
        System.out.println("READY");
        Thread.sleep(600_000);
    }
}
